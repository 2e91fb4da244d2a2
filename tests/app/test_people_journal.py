from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.app.fixtures import run_dirs

from lastgood.events import event_from_line
from lastgood.journal import read_run
from lastgood.ledger import Ledger
from lastgood.state import Incident, RunState
from lastgood_console import actions, cli
from lastgood_console.actions import ActionError, Deed
from lastgood_console.people_journal import PeopleJournal, writer_name

NOW = 1_795_921_082.0  # 2026-11-29T02:58:02Z


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return run_dirs.written(run_dirs.still_open(), tmp_path / "runs" / "llama-7b")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[PeopleJournal]:
    opened = PeopleJournal(tmp_path / "runs" / ".lastgood", host="trainer-1", clock=lambda: NOW)
    yield opened
    opened.close()


def read(run_dir: Path) -> RunState:
    ledger = Ledger([run_dir.parent], state_dir=run_dir.parent / ".lastgood")
    ledger.refresh()
    return ledger.runs()["llama-7b"]


def about(run_dir: Path) -> tuple[RunState, Incident]:
    state = read(run_dir)
    return state, state.incidents[0]


def note(run_dir: Path, text: str = "drained", by: str = "mira") -> Deed:
    return actions.to_incident(*about(run_dir), "note", by, text)


def words(run_dir: Path) -> list[tuple[str, str]]:
    """Return (text, author) of every note that the ledger knows."""
    return [(e.data["text"], e.data["author"]) for e in read(run_dir).annotations if e.type == "note"]


def test_a_deed_is_one_line_in_a_file_of_this_consoles_own(run_dir: Path, journal: PeopleJournal) -> None:
    written = journal.write("llama-7b", run_dir, note(run_dir))
    again = journal.write("llama-7b", run_dir, note(run_dir, "rebooted"))
    assert written.file == again.file
    assert written.file.parent == run_dir / "journal" / "console"
    assert written.file.name.startswith("trainer-1-")
    lines = written.file.read_bytes().splitlines()
    assert [event_from_line(line) for line in lines] == [written.event, again.event]
    assert written.event.time == "2026-11-29T02:58:02.000000Z"
    assert written.event.source == f"/lastgood/llama-7b/console/{written.file.stem}"
    assert words(run_dir) == [("drained", "mira"), ("rebooted", "mira")]
    assert read(run_dir).unreadable == ()


def test_every_action_is_understood_when_it_is_read_again(run_dir: Path, journal: PeopleJournal) -> None:
    for action, state in (("acknowledge", "open"), ("cause", "open"), ("close", "closed"), ("reopen", "reopened")):
        journal.write("llama-7b", run_dir, actions.to_incident(*about(run_dir), action, "mira", f"why {action}"))
        assert about(run_dir)[1].state == state
    incident = about(run_dir)[1]
    assert (incident.acknowledged, incident.cause and incident.cause.text) == (None, "why cause")


def test_a_clock_that_is_behind_the_ranks_changes_nothing(run_dir: Path, tmp_path: Path) -> None:
    slow = PeopleJournal(tmp_path, host="x", clock=lambda: NOW - 1e6)
    written = slow.write("llama-7b", run_dir, actions.to_incident(*about(run_dir), "close", "mira", "x"))
    slow.close()
    assert written.event.time > read(run_dir).last_event_at
    assert about(run_dir)[1].state == "closed"


def test_two_consoles_of_one_name_write_to_two_files(run_dir: Path, tmp_path: Path) -> None:
    numbers = count()
    names = iter(["same", "same", "same", "same", "other"])
    first, second = (PeopleJournal(tmp_path, host="h", identify=lambda: next(names, f"n{next(numbers)}")) for _ in "ab")
    files = {
        journal.write("llama-7b", run_dir, note(run_dir, text)).file for journal, text in ((first, "a"), (second, "b"))
    }
    for journal in (first, second):
        journal.close()
    assert {file.name for file in files} == {"h-same.jsonl", "h-other.jsonl"}
    assert sorted(text for text, _ in words(run_dir)) == ["a", "b"]


def test_terminals_that_write_at_once_lose_nothing(run_dir: Path) -> None:
    name = about(run_dir)[1].id
    command = [sys.executable, "-m", "lastgood_console.cli", "incident", "note", str(run_dir), name]
    started = [subprocess.Popen([*command, f"note {n}", "--by", "mira"], stdout=subprocess.DEVNULL) for n in range(4)]
    assert [process.wait(timeout=60) for process in started] == [0] * 4
    assert sorted(words(run_dir)) == [(f"note {n}", "mira") for n in range(4)]


def test_a_torn_line_of_another_console_costs_itself_alone(run_dir: Path, journal: PeopleJournal) -> None:
    file = journal.write("llama-7b", run_dir, note(run_dir)).file
    torn = file.with_name("crashed-1.jsonl")
    torn.write_bytes(file.read_bytes()[:60])
    assert words(run_dir) == [("drained", "mira")]
    torn.write_bytes(file.read_bytes()[:60] + b"\n")
    assert words(run_dir) == [("drained", "mira")]
    (place,) = read(run_dir).unreadable
    assert (place.file, place.line) == ("journal/console/crashed-1.jsonl", 1)


def test_a_run_directory_that_cannot_be_written_is_answered_by_the_state_folder(
    run_dir: Path, journal: PeopleJournal
) -> None:
    (run_dir / "journal" / "console").write_text("in the way")
    written = journal.write("llama-7b", run_dir, note(run_dir))
    assert written.file == run_dir.parent / ".lastgood" / "events" / "llama-7b.jsonl"
    assert written.instead == f"the run directory {run_dir} cannot be written (File exists)"
    assert words(run_dir) == [("drained", "mira")]


# Nothing keeps root from writing; the file in the way, above, takes the same branch.
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_run_directory_is_answered_by_the_state_folder(run_dir: Path, journal: PeopleJournal) -> None:
    (run_dir / "journal").chmod(0o555)
    assert journal.write("llama-7b", run_dir, note(run_dir)).instead.endswith("(Permission denied)")
    assert words(run_dir) == [("drained", "mira")]


def test_a_link_out_of_the_run_directory_is_not_followed(run_dir: Path, journal: PeopleJournal, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (run_dir / "journal" / "console").symlink_to(outside)
    assert "is a symbolic link" in journal.write("llama-7b", run_dir, note(run_dir)).instead
    assert list(outside.iterdir()) == []


def test_a_run_directory_that_went_away_is_not_made_again(
    run_dir: Path, journal: PeopleJournal, tmp_path: Path
) -> None:
    deed = note(run_dir)
    run_dir.rename(tmp_path / "moved")
    assert "it has no journal" in journal.write("llama-7b", run_dir, deed).instead
    assert not run_dir.exists()


def test_a_run_without_a_directory_is_written_to_the_state_folder(run_dir: Path, journal: PeopleJournal) -> None:
    written = journal.write("llama-7b", None, note(run_dir))
    assert written.file.name == "llama-7b.jsonl"
    assert json.loads(written.file.read_text())["data"]["text"] == "drained"


def test_a_disk_that_is_full_is_answered_by_the_state_folder_and_the_event_is_one(
    run_dir: Path, journal: PeopleJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.write("llama-7b", run_dir, note(run_dir, "before"))
    deed, sync = note(run_dir, "during"), os.fsync
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _full_in(run_dir / "journal", sync))
        assert "No space left" in journal.write("llama-7b", run_dir, deed).instead
    journal.write("llama-7b", run_dir, note(run_dir, "after"))
    assert [text for text, _ in words(run_dir)] == ["before", "during", "after"]
    assert len(list((run_dir / "journal" / "console").iterdir())) == 2


def _full_in(folder: Path, sync):  # type: ignore[no-untyped-def]
    def full(fd: int) -> None:
        if str(folder) in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(28, "No space left on device")
        sync(fd)

    return full


def test_what_can_be_kept_nowhere_is_said(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "journal" / "console").write_text("in the way")
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(
        ActionError, match=r"cannot be written \(File exists\), nor can .*state.*: name a folder that can"
    ):
        PeopleJournal(tmp_path / "state").write("llama-7b", run_dir, note(run_dir))
    with pytest.raises(ActionError, match="name a folder to keep it in with --state"):
        PeopleJournal(None).write("llama-7b", run_dir, note(run_dir))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("node-b", "node-b"),
        ("../../etc", "etc"),
        ("\u05d0", "host"),
        ("", "host"),
        (".hidden", "hidden"),
        ("x" * 99, "x" * 48),
    ],
)
def test_any_host_name_makes_a_file_name(host: str, expected: str, run_dir: Path) -> None:
    assert writer_name(host) == expected
    journal = PeopleJournal(None, host=host)
    journal.write("llama-7b", run_dir, note(run_dir))
    journal.close()
    events, unreadable = read_run(run_dir)
    assert [e.data["text"] for e in events if e.type == "note"] == ["drained"]
    assert unreadable == []


# --- in a terminal ---------------------------------------------------------------------------------------------------

Capture = pytest.CaptureFixture[str]


def test_a_terminal_says_how_the_incident_stands_now(run_dir: Path, capsys: Capture) -> None:
    name = about(run_dir)[1].id
    assert cli.main(["incident", "acknowledge", str(run_dir), name, "--by", "mira"]) == 0
    assert cli.main(["incident", "cause", str(run_dir), name[:4], "power supply", "--by", "kim"]) == 0
    assert cli.main(["incident", "close", str(run_dir), name, "board replaced", "--by", "kim"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"llama-7b {name}: acknowledged. It is open, acknowledged by mira.",
        f"llama-7b {name}: cause noted. It is open, acknowledged by mira, cause: power supply.",
        f"llama-7b {name}: closed. It is closed by kim, acknowledged by mira, cause: power supply.",
    ]
    assert cli.main(["incidents", str(run_dir)]) == 0
    out = capsys.readouterr().out
    assert "seen by      mira, 20" in out
    assert "cause        power supply (kim), 20" in out


@pytest.mark.parametrize("form", ["json", "csv", "md", "html"])
def test_what_people_said_is_in_every_export(run_dir: Path, form: str, capsys: Capture) -> None:
    name = about(run_dir)[1].id
    for action, text in (("note", "drained it"), ("cause", "power supply"), ("close", "board replaced")):
        cli.main(["incident", action, str(run_dir), name, text, "--by", "mira"])
    capsys.readouterr()
    assert cli.main(["export", str(run_dir), name, "--format", form]) == 0
    out = capsys.readouterr().out
    assert [text for text in ("mira", "drained it", "power supply", "board replaced") if text not in out] == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["note", "{run}", "{name}", "x" * 4_001, "--by", "mira"], "the text has 4001 letters: at most 4000"),
        (["note", "{run}", "{name}", "x", "--by", "lastgood"], "is a name that lastgood uses itself"),
        (["note", "{run}", "{name}", "--by", "mira"], "note needs words"),
        (["reopen", "{run}", "{name}", "x", "--by", "mira"], "is open: only one that is closed or recovered"),
        (["note", "{run}", "r-nope", "x", "--by", "mira"], "run llama-7b has no incident r-nope"),
        (["note", "{run}", "{name}", "x"], "the following arguments are required: --by"),
    ],
)
def test_a_terminal_says_in_one_sentence_what_cannot_be_done(
    run_dir: Path, arguments: list[str], problem: str, capsys: Capture
) -> None:
    name = about(run_dir)[1].id
    assert cli.main(["incident", *(a.format(run=run_dir, name=name) for a in arguments)]) == 2
    assert problem in capsys.readouterr().err
    assert words(run_dir) == []


def test_a_terminal_says_where_it_kept_it_instead(run_dir: Path, capsys: Capture) -> None:
    (run_dir / "journal" / "console").write_text("in the way")
    assert cli.main(["incident", "acknowledge", str(run_dir), about(run_dir)[1].id, "--by", "mira"]) == 0
    kept, said = capsys.readouterr().out.splitlines()
    assert kept.startswith(f"Kept in {run_dir.parent}/.lastgood/events/llama-7b.jsonl: the run directory")
    assert "acknowledged by mira" in said


def test_a_checkpoint_is_accepted_and_what_follows_is_said(tmp_path: Path, capsys: Capture) -> None:
    story = run_dirs.History("llama-7b").start().save(0).audit(1, phase="first").save(50).end(60, "signal")
    story.start(50, (1, 50, story.path(50)), nodes=("node-a", "node-d", "node-c")).audit(51).save(75).audit(100)
    run_dir = run_dirs.written(story, tmp_path / "llama-7b")
    path = str(run_dir / "checkpoints" / "a1-step-000050")
    assert cli.main(["checkpoint", "accept", path, "--by", "mira", "--reason", "compared with the copy"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "llama-7b: accepted checkpoints/a1-step-000050.",
        "  checkpoints/a2-step-000075: unverified before, trusted now",
    ]
    assert cli.main(["checkpoint", "list", str(run_dir)]) == 0
    assert "Accepted by mira." in capsys.readouterr().out
    assert cli.main(["checkpoint", "accept", str(run_dir), "--parent-of", "1", "--by", "m", "--reason", "x"]) == 2
    assert "attempt 1 began at step 0, from nothing" in capsys.readouterr().err
