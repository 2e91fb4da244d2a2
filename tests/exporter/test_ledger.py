"""The ledger: it follows every run, folds what is new, and one broken run hides no other."""

import gc
import os
import random
from collections.abc import Iterable
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.events import Event, source_of, utc
from lastgood.fold import derive
from lastgood.gone import Gone
from lastgood.ingest import EventIntake
from lastgood.journal import JournalTail, JournalWriter
from lastgood.ledger import Ledger, default_state_dir
from lastgood.posted import PostedEvents
from lastgood.run_record import presence
from lastgood.serve import health
from lastgood.state import Device, Place, RunState
from lastgood.topology_files import write_topology
from lastgood_console.components.devices import rows as device_rows

SUSPECT = {"rank": 3, "node": "node-b", "gpu_uuid": "cpu-1", "slot": 1}
PLACES = [Place(rank, f"node-{'abc'[rank // 2]}", f"cpu-{rank % 2}", rank % 2) for rank in range(6)]
JSON = {"Content-Type": "application/json"}


def started(**changes: Any) -> dict[str, Any]:
    return {
        "world_size": 6, "topology": "topology/1.json.gz", "config": {}, "cadence": {"replay": 50, "replica": 50},
        "not_run": {}, "environment": {"e": [0]}, "versions": {}, "seed": None, "parent": None, "parent_known": True,
        "parent_verified": True, "from_step": 0,
    } | changes  # fmt: skip


FINDING = {
    "check": "replay", "step": 100, "state_step": 100, "phase": "audit", "contained": False, "ranks": [3],
    "devices": [SUSPECT], "tensor": None, "bucket": None, "observed": "0x1", "expected": "0x2", "evidence": [],
}  # fmt: skip
VERDICT = {
    "findings": ["f-1"], "status": "attributed", "scope": "gpu", "suspects": [SUSPECT | {"role": "accused"}],
    "nature": "persistent", "confidence": "exact", "for": ["rank 0 sided with rank 5"], "against": [], "resume": None,
    "action": "stop",
}  # fmt: skip


class Training:
    """Write what a real training run writes, with a clock of one second per event."""

    def __init__(self, run_dir: Path, run: str = "llama") -> None:
        self.run_dir, self.run = run_dir, run
        self.now = 1_800_000_000.0
        self.events: list[Event] = []
        self.one = self.writer("rank-0", 0)
        write_topology(run_dir, 1, PLACES)

    def writer(self, name: str, rank: int) -> JournalWriter:
        return JournalWriter(self.run_dir, self.run, 1, name, rank=rank, clock=self.clock, on_event=self.events.append)

    def clock(self) -> float:
        self.now += 1
        return self.now

    def start(self) -> "Training":
        self.one.write("run.started", started(), step=0)
        return self

    def save(self, step: int) -> None:
        path = f"checkpoints/a1-step-{step:06}"
        (self.run_dir / "checkpoints").mkdir(exist_ok=True)
        (self.run_dir / path).write_text("weights")
        save = {"attempt": 1, "step": step, "path": path, "parent": None, "checks": {"replica": "passed"}}
        self.one.write("checkpoint.saved", save, step=step)

    def lie(self, **verdict: Any) -> None:
        for writer in (self.one, self.writer("rank-3", 3)):
            source = source_of(self.run, 1)
            writer.write("finding", FINDING, step=100, event_id="f-1", source=source)
            writer.write("verdict", VERDICT | verdict, step=100, event_id="v-1", source=source)


def count(run: str, events: Iterable[Event], **known: Any) -> RunState:
    """Fold for real, and remember how often each run was folded."""
    FOLDED[run] = FOLDED.get(run, 0) + 1
    return derive(run, events, **known)


FOLDED: dict[str, int] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    FOLDED.clear()


def test_only_runs_with_news_are_folded_again(tmp_path: Path) -> None:
    a, _ = Training(tmp_path / "a", "a").start(), Training(tmp_path / "b", "b").start()
    ledger = Ledger([tmp_path], fold=count)
    ledger.refresh()
    ledger.refresh()
    assert FOLDED == {"a": 1, "b": 1}
    a.save(25)
    ledger.refresh()
    assert FOLDED == {"a": 2, "b": 1}


def test_new_runs_are_found_and_named_by_their_run_id(tmp_path: Path) -> None:
    ledger = Ledger([tmp_path / "runs"])
    ledger.refresh()
    assert dict(ledger.runs()) == {}
    Training(tmp_path / "runs" / "Try 1", "llama").start()
    Training(tmp_path / "runs" / "other", "mistral").start()
    ledger.refresh()
    assert list(ledger.runs()) == ["llama", "mistral"]
    assert ledger.path_of("llama") == tmp_path / "runs" / "Try 1"
    assert ledger.run("nothing") is None


def test_the_state_is_that_of_all_events_with_the_topology(tmp_path: Path) -> None:
    training = Training(tmp_path / "llama").start()
    training.lie()
    ledger = Ledger([tmp_path])
    ledger.refresh()
    state = ledger.run("llama")
    assert state == derive("llama", training.events, topologies={1: tuple(PLACES)})
    assert state
    assert state.attempts[0].places == tuple(PLACES)
    assert [suspect.node for suspect in state.incidents[0].suspects] == ["node-b"]


@given(st.randoms(use_true_random=False))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
def test_refreshing_at_any_moment_and_posting_in_any_order_gives_the_same_state(
    tmp_path: Path, rng: random.Random
) -> None:
    folder = tmp_path / uuid4().hex
    training = Training(folder / "runs" / "llama")
    ledger = Ledger([folder / "runs"])
    for act in (training.start, lambda: training.save(25), training.lie, lambda: training.save(125)):
        act()
        if rng.random() < 0.5:
            ledger.refresh()
        ledger.ingest(rng.sample(training.events, rng.randrange(len(training.events))))
    ledger.refresh()
    once = Ledger([folder / "runs"])
    once.refresh()
    assert ledger.run("llama") == once.run("llama")


def test_a_run_known_from_posts_alone_is_there_and_is_rebuilt_after_a_restart(tmp_path: Path) -> None:
    training = Training(tmp_path / "elsewhere").start()
    training.lie()
    (tmp_path / "runs").mkdir()
    for _ in range(2):
        ledger = Ledger([tmp_path / "runs"], state_dir=tmp_path / "state")
        ledger.refresh()
        body = "[" + ",".join(event.to_line() for event in training.events) + "]"
        EventIntake(tmp_path / "state", ledger).accept(body.encode(), JSON, "127.0.0.1")
        state = ledger.run("llama")
        assert state
        assert len(state.incidents) == 1
    assert ledger.path_of("llama") is None


def alert_about(run: str, number: int = 1) -> Event:
    data = {
        "name": "X",
        "status": "firing",
        "labels": {},
        "starts_at": utc(1.0),
        "fingerprint": "f",
        "source": "grafana",
    }
    return Event(f"alert-{number}", f"/lastgood/{run}/alerts", "alert", utc(2.0), run, 0, data)


def test_an_alert_may_name_any_run_and_makes_none(tmp_path: Path) -> None:
    alert = alert_about("llama")
    PostedEvents(tmp_path / "state").keep([alert])
    ledger = Ledger([tmp_path / "runs"], state_dir=tmp_path / "state")
    ledger.refresh()
    assert dict(ledger.runs()) == {}
    Training(tmp_path / "runs" / "llama").start()
    ledger.refresh()
    state = ledger.run("llama")
    assert state is not None
    assert [event.id for event in state.annotations] == ["alert-1"]


def test_posted_events_join_the_run_directory_when_it_appears(tmp_path: Path) -> None:
    training = Training(tmp_path / "elsewhere").start()
    ledger = Ledger([tmp_path / "runs"])
    ledger.ingest(training.events)
    assert list(ledger.runs()) == ["llama"]
    (tmp_path / "runs").mkdir()
    (tmp_path / "elsewhere").rename(tmp_path / "runs" / "Try 7")
    ledger.refresh()
    assert list(ledger.runs()) == ["llama"]
    assert ledger.path_of("llama") == tmp_path / "runs" / "Try 7"


def test_posted_events_join_no_run_when_two_directories_hold_their_run_id(tmp_path: Path) -> None:
    first = Training(tmp_path / "a").start()
    Training(tmp_path / "b").start()
    ledger = Ledger([tmp_path])
    ledger.refresh()
    before = dict(ledger.runs())
    assert sorted(before) == ["b", "llama"]
    first.lie()
    ledger.ingest(first.events)
    assert dict(ledger.runs()) == before


@pytest.mark.parametrize("name", ["b", "llama"])
def test_an_alert_joins_the_run_of_its_name_and_hides_none(tmp_path: Path, name: str) -> None:
    Training(tmp_path / "a").start()
    Training(tmp_path / "b").start()
    ledger = Ledger([tmp_path], state_dir=tmp_path / "state")
    ledger.refresh()
    PostedEvents(tmp_path / "state").keep([alert_about(name)])
    ledger.refresh()
    assert {run: len(state.annotations) for run, state in ledger.runs().items()} == {"b": 0, "llama": 0} | {name: 1}
    assert ledger.runs()[name].run == name


def test_a_posted_run_called_like_the_directory_of_a_copy_hides_it_not(tmp_path: Path) -> None:
    for name in "ab":
        Training(tmp_path / "runs" / name).start()
    other = Training(tmp_path / "elsewhere", "b").start()
    ledger = Ledger([tmp_path / "runs"])
    ledger.refresh()
    ledger.ingest([*other.events, alert_about("b")])
    assert list(ledger.runs()) == ["b", "llama", "posted.b"]
    assert ledger.path_of("b") == tmp_path / "runs" / "b"
    assert [len(state.annotations) for state in ledger.runs().values()] == [1, 0, 0]
    ledger.ingest([alert_about("posted.b")])
    assert [len(state.annotations) for state in ledger.runs().values()] == [1, 0, 1]


def test_posted_files_of_others_are_named_not_believed(tmp_path: Path) -> None:
    events = tmp_path / "state" / "events"
    events.mkdir(parents=True)
    good = Event("1", "/x", "run.started", utc(1), "llama", 1, started())
    bad = Event("1", "/x", "run.started", utc(1), "other", 1, started())
    (events / "llama.jsonl").write_text(f"{good.to_line()}\nhello\n{bad.to_line()}\n")
    ledger = Ledger([tmp_path / "runs"], state_dir=tmp_path / "state")
    ledger.refresh()
    state = ledger.run("llama")
    assert state
    assert [(place.file, place.line) for place in state.unreadable] == [("llama.jsonl", 2), ("llama.jsonl", 3)]


def test_a_run_that_cannot_be_folded_is_named_and_hides_no_other(tmp_path: Path) -> None:
    def fragile(run: str, events: Iterable[Event], **known: Any) -> RunState:
        if run == "broken" and (events := list(events)):
            raise KeyError("surprise")
        return derive(run, events, **known)

    Training(tmp_path / "broken", "broken").start()
    Training(tmp_path / "fine", "fine").start()
    ledger = Ledger([tmp_path], fold=fragile)
    ledger.refresh()
    assert list(ledger.runs()) == ["broken", "fine"]
    assert ledger.unreadable_lines() == {"broken": 1, "fine": 0}
    broken = ledger.run("broken")
    assert broken
    assert "KeyError('surprise')" in broken.unreadable[0].reason


def test_events_of_another_run_are_named_and_counted_one_place_a_file(tmp_path: Path) -> None:
    training = Training(tmp_path / "llama").start()
    other = JournalWriter(tmp_path / "llama", "mistral", 1, "rank-1", rank=1, clock=training.clock)
    for text in "abc":
        other.write("note", {"text": text})
    ledger = Ledger([tmp_path])
    ledger.refresh()
    state = ledger.run("llama")
    assert state is not None
    assert [(p.file, p.line, p.reason) for p in state.unreadable] == [
        ("journal/000001/rank-1.jsonl", 0, "3 events of run 'mistral', which is not this run")
    ]
    assert ledger.unreadable_lines() == {"llama": 1}
    assert not state.annotations
    other.write("note", {"text": "d"})
    ledger.refresh()
    after = ledger.run("llama")
    assert after is not None
    assert [p.reason for p in after.unreadable] == ["4 events of run 'mistral', which is not this run"]


def test_a_file_that_was_replaced_is_counted_anew(tmp_path: Path) -> None:
    training = Training(tmp_path / "llama").start()
    other = JournalWriter(tmp_path / "llama", "mistral", 1, "rank-1", rank=1, clock=training.clock)
    other.write("note", {"text": "a"})
    tail = JournalTail(tmp_path / "llama")
    tail.poll()
    assert [p.reason for p in tail.foreign("llama")] == ["1 event of run 'mistral', which is not this run"]
    path = tmp_path / "llama/journal/000001/rank-1.jsonl"
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    tail.poll()
    assert [p.reason for p in tail.foreign("llama")] == ["1 event of run 'mistral', which is not this run"]
    assert tail.foreign("nobody") == ()


def test_progress_of_another_run_is_not_that_of_this_one(tmp_path: Path) -> None:
    Training(tmp_path / "llama").start()
    with (tmp_path / "llama/journal/000001/rank-1.progress.jsonl").open("w") as file:
        data = {"step": 9, "step_seconds": 0.1}
        event = Event("p-1", source_of("mistral", 1, 1), "progress", utc(1.8e9), "mistral", 1, data, 1, "node-a", 9)
        file.write(event.to_line() + "\n")
    ledger = Ledger([tmp_path])
    ledger.refresh()
    assert ledger.progress("llama") is None


def test_unreadable_lines_and_a_missing_topology_are_told(tmp_path: Path) -> None:
    training = Training(tmp_path / "llama").start()
    (tmp_path / "llama" / "topology" / "1.json.gz").unlink()
    with open(training.one.path, "a") as file:
        file.write("hello\n")
    now = [0.0]
    ledger = Ledger([tmp_path], clock=lambda: now[0])
    ledger.refresh()
    state = ledger.run("llama")
    assert state
    assert [place.file for place in state.unreadable] == ["journal/000001/rank-0.jsonl", "topology/1.json.gz"]
    write_topology(tmp_path / "llama", 1, PLACES)
    now[0] = 20.0
    ledger.refresh()
    assert ledger.unreadable_lines() == {"llama": 1}


def test_a_checkpoint_that_disappears_is_noticed_within_ten_seconds(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    training = Training(tmp_path / "llama").start()
    training.save(25)
    ledger = Ledger([tmp_path], clock=lambda: now[0])
    ledger.refresh()

    def trust() -> str:
        state = ledger.run("llama")
        assert state
        return state.checkpoints[0].trust

    assert trust() not in ("missing", "unreadable")
    (tmp_path / "llama" / "checkpoints" / "a1-step-000025").write_text("")
    now[0] += 10
    ledger.refresh()
    assert trust() == "unreadable"
    (tmp_path / "llama" / "checkpoints" / "a1-step-000025").unlink()
    now[0] += 10
    ledger.refresh()
    assert trust() == "missing"


def test_presence_says_nothing_about_storage_that_is_not_mounted(tmp_path: Path) -> None:
    (tmp_path / "run" / "saves").mkdir(parents=True)
    assert presence(tmp_path / "run", "saves") == "ok"
    assert presence(tmp_path / "run", "gone/step-1") == "missing"
    assert presence(tmp_path / "run", str(tmp_path / "step-1")) == "missing"
    assert presence(tmp_path / "run", "/mnt/other-cluster/saves/step-1") is None
    assert presence(tmp_path / "run", "x" * 5000) == "unreadable"
    assert presence(tmp_path / "run", "a\0b") == "unreadable"


def test_lag_is_the_age_of_the_newest_event_when_it_was_read(tmp_path: Path) -> None:
    training = Training(tmp_path / "llama").start()
    ledger = Ledger([tmp_path], clock=lambda: training.now + 7)
    assert ledger.last_read_at is None
    assert ledger.lag_seconds("llama") is None
    ledger.refresh()
    assert ledger.lag_seconds("llama") == 0
    training.save(25)
    ledger.refresh()
    assert ledger.lag_seconds("llama") == 7
    assert ledger.last_read_at == training.now + 7


def test_the_newest_progress_is_that_of_the_newest_attempt_wherever_it_came_from(tmp_path: Path) -> None:
    training = Training(tmp_path / "llama").start()
    training.one.progress({"step": 10}, 10)
    ledger = Ledger([tmp_path])
    assert ledger.progress("llama") is None
    ledger.refresh()
    assert ledger.progress("llama") == {"step": 10}
    ledger.ingest([Event("p", "/x", "progress", utc(9e9), "llama", 2, {"step": 5})])
    assert ledger.progress("llama") == {"step": 5}
    training.one.progress({"step": 11}, 11)
    ledger.refresh()
    assert ledger.progress("llama") == {"step": 5}


def test_progress_moves_the_step_of_a_run_and_the_passes_of_its_per_step_checks(tmp_path: Path) -> None:
    training = Training(tmp_path / "llama").start()
    ledger = Ledger([tmp_path])
    ledger.refresh()
    training.one.progress({"step": 77, "passed": {"finite": 77}}, 77)
    ledger.refresh()
    state = ledger.run("llama")
    assert state
    assert state.attempts[0].last_step == 77
    assert state.checks[0].last_pass_step == 77


def test_two_directories_with_one_run_id_are_two_runs_with_two_names(tmp_path: Path) -> None:
    Training(tmp_path / "a").start()
    Training(tmp_path / "b").start().lie()
    ledger = Ledger([tmp_path])
    ledger.refresh()
    assert [state.run for state in ledger.runs().values()] == list(ledger.runs()) == ["b", "llama"]
    assert [incident.run for incident in ledger.runs()["b"].incidents] == ["b"]
    assert ledger.runs()["llama"].incidents == ()


def test_accusations_are_counted_over_all_runs_and_within_days(tmp_path: Path) -> None:
    for run in ("a", "b"):
        training = Training(tmp_path / run, run).start()
        training.lie()
    ledger = Ledger([tmp_path])
    ledger.refresh()
    device = Device("node-b", "cpu-1")
    assert ledger.node_accusations(7, training.now) == {device: 2}
    assert ledger.node_accusations(7, training.now + 8 * 86400) == {}
    assert ledger.node_accusations(90, training.now + 8 * 86400) == {device: 2}


def test_an_incident_counts_once_however_many_directories_hold_it(tmp_path: Path) -> None:
    training = Training(tmp_path / "llama").start()
    training.lie()
    copytree(tmp_path / "llama", tmp_path / "llama-copy")
    ledger = Ledger([tmp_path])
    ledger.refresh()
    assert [len(state.incidents) for state in ledger.runs().values()] == [1, 1]
    assert ledger.node_accusations(90, training.now) == {Device("node-b", "cpu-1"): 1}
    (row,) = [row for row in device_rows(ledger.runs().values(), training.now) if row.quarter]
    assert len(row.week) == len(row.quarter) == len(row.incidents) == 1


def test_candidates_are_not_accused(tmp_path: Path) -> None:
    accused = SUSPECT | {"role": "accused"}
    stories = [{"status": "undecided"}, {"suspects": [SUSPECT | {"role": "candidate"}]}]
    for n, story in enumerate(stories):
        Training(tmp_path / f"run-{n}", f"run-{n}").start().lie(**{"suspects": [accused]} | story)
    ledger = Ledger([tmp_path])
    ledger.refresh()
    assert [len(state.incidents) for state in ledger.runs().values()] == [1, 1]
    assert ledger.node_accusations(7, 1_800_000_000.0) == {}


def test_posting_never_waits_for_a_refresh_that_reads_slow_storage(tmp_path: Path) -> None:
    training = Training(tmp_path / "elsewhere").start()
    ledger = Ledger([tmp_path / "runs"])
    with ledger._lock:  # what a refresh holds
        thread = Thread(target=ledger.ingest, args=(training.events,))
        thread.start()
        thread.join(5)
        assert not thread.is_alive()
    assert "llama" not in ledger.runs()
    ledger.refresh()
    assert "llama" in ledger.runs()


def test_posted_events_are_kept_beside_the_runs_by_default() -> None:
    assert default_state_dir([Path("runs"), Path("more")]) == Path("runs/.lastgood")
    assert default_state_dir([]) == Path(".lastgood")


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_of_cycles_is_left_as_it_was_found(tmp_path: Path, was_on: bool) -> None:
    Training(tmp_path / "a", "a").start()
    (gc.enable if was_on else gc.disable)()
    try:
        seen: list[bool] = []
        ledger = Ledger([tmp_path], fold=lambda *args, **known: seen.append(gc.isenabled()) or derive(*args, **known))
        ledger.refresh()
        assert (seen, gc.isenabled()) == ([False], was_on)
    finally:
        gc.enable()


def test_a_folder_that_goes_keeps_its_runs_as_last_read_and_ages_until_it_is_back(tmp_path: Path) -> None:
    now = [1000.0]
    folder, away = tmp_path / "runs", tmp_path / "away"
    training = Training(folder / "llama").start()
    training.save(50)  # nobody can see whether it is still there
    ledger = Ledger([folder], clock=lambda: now[0])
    ledger.refresh()
    before = ledger.run("llama")
    folder.rename(away)
    for now[0] in (1007.0, 1090.0):
        ledger.refresh()
        assert ledger.run("llama") is before
        assert (ledger.last_read_at, ledger.gone) == (1000.0, Gone({folder: 1007.0}, frozenset({"llama"}), {}))
    status, answer = health(ledger, 1090.0)
    assert (status, answer["status"], answer["folders_gone"]) == (503, "stale", 1)
    away.rename(folder)
    now[0] = 1100.0
    ledger.refresh()
    assert (ledger.last_read_at, ledger.gone) == (1100.0, Gone())
    assert health(ledger, 1101.0)[0] == 200


def test_an_empty_mount_point_is_a_folder_that_went_and_an_empty_folder_is_not(tmp_path: Path) -> None:
    """A link stands for the mount: what it leads to lies on another file system, as what was mounted did."""
    place, below = tmp_path / "runs", tmp_path / "below"
    below.mkdir()
    with TemporaryDirectory(dir="/dev/shm") as mounted:
        assert os.stat(mounted).st_dev != os.stat(below).st_dev
        Training(Path(mounted) / "llama").start()
        place.symlink_to(mounted)
        ledger = Ledger([place], clock=lambda: 1000.0)
        ledger.refresh()
        place.unlink()
        place.symlink_to(below)
        ledger.refresh()
        assert (list(ledger.runs()), ledger.gone) == (["llama"], Gone({place: 1000.0}, frozenset({"llama"}), {}))
        Training(below / "other", "other").start()  # somebody goes on there
        ledger.refresh()
        assert (list(ledger.runs()), ledger.gone) == (["other"], Gone({}, frozenset(), {"llama": 1000.0}))
        (below / "other").rename(tmp_path / "elsewhere")
        ledger.refresh()
        assert (list(ledger.runs()), ledger.gone.places) == ([], {})


def test_a_run_directory_that_goes_is_remembered_with_when_it_was_last_there(tmp_path: Path) -> None:
    now = [1000.0]
    for name in ("one", "two"):
        Training(tmp_path / name, name).start()
    ledger = Ledger([tmp_path], clock=lambda: now[0])
    ledger.refresh()
    (tmp_path / "one").rename(tmp_path / ".hidden")
    for now[0] in (1007.0, 1090.0):
        ledger.refresh()
        assert (list(ledger.runs()), ledger.gone.runs, ledger.last_read_at) == (["two"], {"one": 1000.0}, now[0])
    (tmp_path / ".hidden").rename(tmp_path / "one")
    ledger.refresh()
    assert (list(ledger.runs()), ledger.gone.runs) == (["one", "two"], {})


def test_a_folder_that_is_not_there_yet_is_not_gone(tmp_path: Path) -> None:
    ledger = Ledger([tmp_path / "later"], clock=lambda: 1000.0)
    ledger.refresh()
    assert (ledger.gone, ledger.last_read_at) == (Gone(), 1000.0)
