"""The journal: what was written is read, whatever happened to the writer in between."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood import journal_read
from lastgood.errors import RunDirError
from lastgood.events import Event, source_of, utc
from lastgood.journal import JournalTail, JournalWriter, claim_attempt, find_runs, is_run_dir, read_run

FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
PROGRESS = {
    "step": 123456, "step_seconds": 0.123456789, "seconds": {"productive": 123456.789, "checkpoint": 3.0},
    "passed": dict.fromkeys(["finite", "conservation", "replica", "replay", "at_rest"], 123456),
    "grad_norm": [0.123456789, 0.2, float("nan")], "extremes": [(16383, 2.123456)] * 8,
}  # fmt: skip


def writer(run_dir: Path, name: str = "rank-0", attempt: int = 1, **options: Any) -> JournalWriter:
    return JournalWriter(run_dir, "llama", attempt, name, rank=0, node="node-a", clock=lambda: 1.0, **options)


def texts(events: list[Event]) -> list[str]:
    return [event.data["text"] for event in events]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- claiming and finding


def test_attempts_are_numbered_from_1_and_claimed_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: claim_attempt(tmp_path / "run"), range(16)))
    assert sorted(numbers) == list(range(1, 17))
    assert (tmp_path / "run" / "journal" / "000016").is_dir()


@pytest.mark.parametrize("run_dir", ["s3://bucket/run", Path("s3://bucket/run"), "gs://x"])
def test_an_object_store_is_one_clear_error(run_dir: Any) -> None:
    with pytest.raises(RunDirError, match="must be a POSIX path"):
        claim_attempt(run_dir)


def test_a_run_directory_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match=r"cannot be used \(Not a directory\)"):
        claim_attempt(tmp_path / "file" / "run")


def test_runs_are_found_one_level_deep_by_the_run_id_in_their_journal(tmp_path: Path) -> None:
    writer(tmp_path / "runs" / "Try 2").write("note", {"text": "x"})
    claim_attempt(tmp_path / "runs" / "Empty Run")
    claim_attempt(tmp_path / "runs" / ".hidden")
    claim_attempt(tmp_path / "runs" / "deep" / "er")
    found = {"empty-run": tmp_path / "runs" / "Empty Run", "llama": tmp_path / "runs" / "Try 2"}
    assert find_runs([tmp_path / "runs", tmp_path / "runs" / "Try 2", tmp_path / "nothing"]) == found
    assert is_run_dir(tmp_path / "runs" / "Try 2")
    assert not is_run_dir(tmp_path / "runs")


def test_two_runs_with_one_name_are_told_apart(tmp_path: Path) -> None:
    for place in ("a/llama", "b/llama", "c/try-3"):
        writer(tmp_path / place).write("note", {"text": place})
    names = find_runs([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    assert names == {"llama": tmp_path / "a/llama", "b.llama": tmp_path / "b/llama", "try-3": tmp_path / "c/try-3"}


@pytest.mark.parametrize(("original", "copy"), [("llama", "a-copy"), ("Llama", "a-copy"), ("llama", "zz-copy")])
def test_the_directory_called_like_the_run_keeps_its_name_from_a_copy(tmp_path: Path, original: str, copy: str) -> None:
    for place in (original, copy):
        writer(tmp_path / place).write("note", {"text": place})
    assert find_runs([tmp_path]) == {"llama": tmp_path / original, copy: tmp_path / copy}
    assert list(find_runs([tmp_path]).values()) == sorted([tmp_path / original, tmp_path / copy])


def test_of_two_copies_that_are_both_called_otherwise_the_first_keeps_the_name(tmp_path: Path) -> None:
    for place in ("try-1", "try-2"):
        writer(tmp_path / place).write("note", {"text": place})
    assert find_runs([tmp_path]) == {"llama": tmp_path / "try-1", "try-2": tmp_path / "try-2"}


def test_a_directory_called_like_another_run_does_not_take_its_name(tmp_path: Path) -> None:
    claim_attempt(tmp_path / "a" / "llama")  # nothing in its journal yet: it goes by its directory's name
    writer(tmp_path / "b" / "try-1").write("note", {"text": "x"})
    names = find_runs([tmp_path / "a", tmp_path / "b"])
    assert names == {"llama": tmp_path / "b/try-1", "a.llama": tmp_path / "a/llama"}


# -- writing


def test_an_event_is_named_after_its_writer_and_a_fact_after_itself(tmp_path: Path) -> None:
    one = writer(tmp_path)
    assert one.write("note", {"text": "x"}, step=3).key == ("/lastgood/llama/1/rank/0", "rank-0-1")
    fact = one.write("note", {"text": "y"}, event_id="f-1", source=source_of("llama", 1))
    assert (fact.key, fact.rank, fact.step) == (("/lastgood/llama/1", "f-1"), 0, None)
    assert read_run(tmp_path)[0][1] == fact


def test_each_event_is_handed_on_and_a_failing_hand_costs_nothing(tmp_path: Path) -> None:
    seen: list[Event] = []
    one = writer(tmp_path, on_event=seen.append)
    assert seen == [] or one
    events = [one.write("note", {"text": "x"}), one.progress({"step": 3}, 3)]
    assert seen == events
    broken = writer(tmp_path, "rank-1", on_event=lambda event: 1 / 0)
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        broken.write("note", {"text": "y"})
    assert broken.errors == 1


def test_data_that_breaks_its_schema_is_written_counted_and_said(tmp_path: Path) -> None:
    one = writer(tmp_path)
    with pytest.warns(RuntimeWarning, match=r"run\.ended: data\.exit_code: missing"):
        one.write("run.ended", {"reason": "completed", "last_step": 1})
    assert (one.errors, len(lines(one.path))) == (1, 1)


def test_a_second_writer_of_one_name_gets_its_own_file_and_ids(tmp_path: Path) -> None:
    first, second = writer(tmp_path), writer(tmp_path)
    assert first.write("note", {"text": "x"}).id == "rank-0-1"
    assert second.write("note", {"text": "y"}).id == "rank-0.2-1"
    assert texts(read_run(tmp_path)[0]) == ["y", "x"]


def test_progress_fits_in_400_bytes_and_keeps_the_passes_of_per_step_checks_longest(tmp_path: Path) -> None:
    long = JournalWriter(tmp_path, "r" * 64, 1, "rank-0", rank=0, node="n" * 60)
    assert long.progress(PROGRESS, 123456).data == {
        "step": 123456, "passed": {"finite": 123456, "conservation": 123456},
    }  # fmt: skip
    assert len((long.path.parent / "rank-0.progress.jsonl").read_bytes()) <= 400
    short = writer(tmp_path / "2").progress(PROGRESS, 123456)
    assert list(short.data) == ["step", "step_seconds", "passed", "grad_norm"]
    assert short.data["grad_norm"] == [0.1235, 0.2, "NaN"]


@given(st.text("r", min_size=1, max_size=64), st.text("n", max_size=200), st.dictionaries(st.text(), st.floats()))
@FIXTURE
def test_progress_fits_whatever_it_holds(tmp_path: Path, run: str, node: str, more: dict[str, float]) -> None:
    one = JournalWriter(tmp_path / uuid4().hex, run, 999999, "rank-16383", rank=16383, node=node)
    event = one.progress(PROGRESS | {"extremes": [[k, v] for k, v in more.items()]}, 10**9)
    assert len(event.to_line().encode()) < 400


def test_findings_verdicts_and_saves_are_synced_and_notes_are_not(tmp_path: Path, monkeypatch: Any) -> None:
    synced: list[int] = []
    one = writer(tmp_path)
    one.write("note", {"text": "creates the file"})
    monkeypatch.setattr(os, "fsync", synced.append)
    one.write("note", {"text": "x"})
    assert synced == []
    one.write("checkpoint.started", {"attempt": 1, "step": 1, "path": "c"})
    assert len(synced) == 1


# -- a disk that fails


def limited(size: int, action: Any) -> Any:
    """Run ``action`` while no file of this process may grow beyond ``size`` bytes: a full disk, for real."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        return action()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_costs_one_warning_and_nothing_is_lost_when_there_is_room_again(tmp_path: Path) -> None:
    problems: list[BaseException] = []
    one = writer(tmp_path, on_error=problems.append)
    one.write("note", {"text": "before"})
    cut = one.path.stat().st_size + 100  # in the middle of the next line
    with pytest.warns(RuntimeWarning, match="training goes on") as said:
        limited(cut, lambda: [one.write("note", {"text": f"while {n}"}) for n in range(3)])
    one.write("note", {"text": "after"})
    assert len(said) == 1
    assert one.errors == len(problems) == 3
    assert all(isinstance(problem, OSError) for problem in problems)
    events, unreadable = read_run(tmp_path)
    assert texts(events) == ["before", "while 0", "while 1", "while 2", "after"]
    assert [(place.file, place.line) for place in unreadable] == [("journal/000001/rank-0.jsonl", 2)]


def test_training_goes_on_where_nothing_can_be_written_at_all(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("a file where the directory should be")
    one = writer(tmp_path)
    with pytest.warns(RuntimeWarning, match="cannot write the journal"):
        assert one.write("note", {"text": "x"}).data["text"] == "x"
    one.progress({"step": 1}, 1)  # no second warning, which would be an error here
    one.close()
    (tmp_path / "journal").unlink()
    later = writer(tmp_path)
    later.write("note", {"text": "y"})
    assert texts(read_run(tmp_path)[0]) == ["y"]


def test_a_journal_that_could_not_be_created_is_created_when_it_can(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    one = writer(tmp_path)
    with pytest.warns(RuntimeWarning):
        one.write("note", {"text": "x"})
    (tmp_path / "journal").unlink()
    one.write("note", {"text": "y"})
    assert texts(read_run(tmp_path)[0]) == ["x", "y"]


def test_a_device_without_space_is_survived(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write("note", {"text": "x"})
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, one._lines._fd)  # type: ignore[arg-type]
    os.close(full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert one.write("note", {"text": "y"}).id == "rank-0-2"


def test_warnings_made_errors_do_not_reach_the_training_loop(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "journal").write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer(tmp_path).write("note", {"text": "x"})
    assert "cannot write the journal" in capsys.readouterr().err


WRITE_FOREVER = """
import sys
from pathlib import Path
from lastgood.journal import JournalWriter
one = JournalWriter(Path(sys.argv[1]), "llama", 1, "rank-0", rank=0)
n = 0
while True:
    n += 1
    one.write("note", {"text": str(n), "padding": "x" * (n * 37 % 5000)})
    if n == 20:
        print("ready", flush=True)
"""


@pytest.mark.parametrize("delay_seconds", [0.0, 0.013, 0.031])
def test_a_writer_killed_in_mid_write_leaves_every_line_but_the_last(tmp_path: Path, delay_seconds: float) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITE_FOREVER, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    time.sleep(delay_seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    events, unreadable = read_run(tmp_path)
    assert texts(events) == [str(n) for n in range(1, len(events) + 1)]
    assert len(events) >= 20
    assert unreadable == []


# -- reading


def test_only_new_events_are_returned_and_new_writers_and_attempts_are_found(tmp_path: Path) -> None:
    tail = JournalTail(tmp_path)
    assert tail.poll() == ([], [])
    first, second = writer(tmp_path), writer(tmp_path, "rank-3")
    first.write("note", {"text": "a"})
    assert texts(tail.poll()[0]) == ["a"]
    second.write("note", {"text": "b"})
    first.write("note", {"text": "c"})
    writer(tmp_path, attempt=2).write("note", {"text": "d"})
    writer(tmp_path, attempt=3).write("note", {"text": "e"})
    assert texts(tail.poll()[0]) == ["c", "b", "d", "e"]
    second.write("note", {"text": "late, in an old attempt"})
    assert texts(tail.poll()[0]) == ["late, in an old attempt"]
    assert tail.poll() == ([], [])


@given(st.lists(st.integers(0, 4000), min_size=1, max_size=12), st.randoms(use_true_random=False), st.integers(30, 400))
@FIXTURE
def test_any_interleaving_of_writes_and_polls_reads_the_same_events(
    tmp_path: Path, paddings: list[int], rng: random.Random, chunk: int
) -> None:
    run_dir = tmp_path / uuid4().hex
    folder = run_dir / "journal" / "000001"
    folder.mkdir(parents=True)
    source = source_of("llama", 1)
    events = [
        Event(str(n), source, "note", utc(n), "llama", 1, {"text": "é" * size}) for n, size in enumerate(paddings)
    ]
    journal = b"".join(event.to_line().encode() + b"\n" for event in events)
    tail, seen, written = JournalTail(run_dir), [], 0
    with pytest.MonkeyPatch.context() as patch, open(folder / "rank-0.jsonl", "ab", buffering=0) as file:
        patch.setattr(journal_read, "_CHUNK_BYTES", chunk)
        while written < len(journal):
            written += file.write(journal[written : written + rng.randrange(1, 3000)])
            if rng.random() < 0.7:
                seen += tail.poll()[0]
        seen += tail.poll()[0]
    assert seen == events
    assert tail.unreadable == ()


def test_a_torn_last_line_is_no_news_until_it_is_finished(tmp_path: Path) -> None:
    one = writer(tmp_path)
    whole = one.write("note", {"text": "x"}).to_line().encode()
    with open(one.path, "ab", buffering=0) as file:
        file.write(whole[:50])
        tail = JournalTail(tmp_path)
        assert [len(part) for part in tail.poll()] == [1, 0]
        assert tail.poll() == ([], [])
        file.write(whole[50:] + b"\n")
    assert texts(tail.poll()[0]) == ["x"]


def foreign_run(tmp_path: Path) -> Path:
    one = writer(tmp_path)
    one.write("note", {"text": "good"})
    newer = Event("z", "/x", "note", utc(1), "llama", 1, {"text": "x"}, schema=7).to_line()
    other = Event("z", "/x", "note", utc(1), "llama", 9, {"text": "x"}).to_line()
    with open(one.path, "a") as file:
        file.write(f"\n{newer}\nhello\n{other}\n")
    one.write("note", {"text": "also good"})
    journal = tmp_path / "journal"
    (journal / "000001" / "notes.txt").write_text("hello")
    (journal / "000001" / ".nfs0001").write_text("hello")
    (journal / "old").mkdir()
    (journal / "000007").write_text("a file")
    (journal / "000001" / "rank-9.jsonl").symlink_to("/etc/passwd")
    os.mkfifo(journal / "000001" / "rank-8.jsonl")
    (journal / "000002").symlink_to("/etc")
    return tmp_path


def test_what_cannot_be_read_is_named_once_and_hides_nothing(tmp_path: Path) -> None:
    tail = JournalTail(foreign_run(tmp_path))
    events, unreadable = tail.poll()
    assert texts(events) == ["good", "also good"]
    assert {(place.file, place.line): place.reason.partition(":")[0] for place in unreadable} == {
        ("journal/000001/notes.txt", 0): "not a journal file",
        ("journal/000001/rank-0.jsonl", 3): "written by a newer lastgood",
        ("journal/000001/rank-0.jsonl", 4): "not a line of JSON",
        ("journal/000001/rank-0.jsonl", 5): "belongs to attempt 9, not 1",
        ("journal/000001/rank-8.jsonl", 0): "cannot be read",
        ("journal/000001/rank-9.jsonl", 0): "cannot be read",
        ("journal/000002", 0): "cannot be listed",
        ("journal/000007", 0): "cannot be listed",
        ("journal/old", 0): "neither the directory of an attempt nor of a console",
    }
    assert "schema version 7" in next(place.reason for place in unreadable if place.line == 3)
    assert tail.poll() == ([], [])
    assert len(tail.unreadable) == 9


def test_a_journal_that_leads_out_of_the_run_directory_is_not_followed(tmp_path: Path) -> None:
    writer(tmp_path / "secret").write("note", {"text": "x"})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal").symlink_to(tmp_path / "secret" / "journal")
    events, unreadable = read_run(tmp_path / "run")
    assert events == []
    assert unreadable[0].reason == "cannot be listed: leads out of the run directory"


def test_what_can_be_read_after_all_is_no_longer_unreadable(tmp_path: Path) -> None:
    (tmp_path / "journal" / "000001" / "rank-0.jsonl").mkdir(parents=True)
    tail = JournalTail(tmp_path)
    assert tail.poll()[1][0].reason == "cannot be read: not a regular file"
    (tmp_path / "journal" / "000001" / "rank-0.jsonl").rmdir()
    writer(tmp_path).write("note", {"text": "x"})
    assert texts(tail.poll()[0]) == ["x"]
    assert tail.unreadable == ()


def test_a_file_that_was_replaced_or_cut_is_read_from_its_beginning(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write("note", {"text": "a" * 9})
    tail = JournalTail(tmp_path)
    tail.poll()
    line = one.path.read_bytes()
    one.path.write_bytes(line.replace(b"a" * 9, b"b"))
    assert texts(tail.poll()[0]) == ["b"]
    other = one.path.with_name("new")
    other.write_bytes(line.replace(b"a" * 9, b"c" * 99))
    other.rename(one.path)
    assert texts(tail.poll()[0]) == ["c" * 99]


@given(st.integers(-2, 2), st.integers(0, 3), st.booleans())
@FIXTURE
def test_a_line_too_long_is_named_and_skipped(tmp_path: Path, around: int, before: int, in_two: bool) -> None:
    run_dir = tmp_path / uuid4().hex
    one = writer(run_dir)
    for n in range(before):
        one.write("note", {"text": str(n)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_read, "MAX_LINE_BYTES", 4096)
        patch.setattr(journal_read, "_CHUNK_BYTES", 512)
        tail = JournalTail(run_dir)
        with open(one.path if before else touched(run_dir), "ab") as file:
            file.write(b"x" * (3 * 4097 + around))
        events = tail.poll()[0] if in_two else []
        with open(one.path, "ab") as file:
            file.write(b"y\n")
        one.write("note", {"text": "end"})
        events += tail.poll()[0]
    path = "journal/000001/rank-0.jsonl"
    assert {(place.file, place.line) for place in tail.unreadable} == {(path, before + 1)}
    assert texts(events)[:before] == [str(n) for n in range(before)]


def touched(run_dir: Path) -> Path:
    folder = run_dir / "journal" / "000001"
    folder.mkdir(parents=True)
    return folder / "rank-0.jsonl"


def test_a_file_full_of_garbage_is_named_a_thousand_times_and_no_more(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write("note", {"text": "x"})
    with open(one.path, "a") as file:
        file.write("garbage\n" * 3000)
    tail = JournalTail(tmp_path)
    tail.poll()
    assert len(tail.unreadable) == 1001
    assert tail.unreadable[0].reason == "more than 1000 lines cannot be read; the others are not listed"
    tail.poll()
    assert len(tail.unreadable) == 1001


def test_the_newest_progress_of_each_writer_is_kept_and_is_no_event(tmp_path: Path) -> None:
    one = writer(tmp_path)
    tail = JournalTail(tmp_path)
    for step in range(1, 400):
        one.progress({"step": step, "passed": {"finite": step}}, step)
    assert tail.poll() == ([], [])
    assert tail.progress[(1, "rank-0")].data == {"step": 399, "passed": {"finite": 399}}
    writer(tmp_path, attempt=2).progress({"step": 400}, 400)
    tail.poll()
    assert sorted(tail.progress) == [(1, "rank-0"), (2, "rank-0")]


def test_a_console_writes_beside_the_attempts_about_any_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "journal" / "console"
    folder.mkdir(parents=True)
    note = Event("n-1", "/console/host-1", "note", utc(1), "llama", 3, {"text": "seen"})
    (folder / "host-1.jsonl").write_text(note.to_line() + "\n")
    assert read_run(tmp_path) == ([note], [])
