"""The run of a fleet is what a real run leaves, and who reads it knows it whole and reads nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lastgood import schema
from lastgood.events import event_from_dict, timestamp_of
from lastgood.fold import derive
from lastgood.journal import read_run
from lastgood.ledger import Ledger, default_state_dir
from lastgood.posted import read_events
from lastgood.state import RunState
from lastgood.topology_files import read_topology

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RANKS, DAYS = 64, 2
WRITE = (
    "import sys; from pathlib import Path; from fleet_run import write_fleet_run; write_fleet_run(Path(sys.argv[1]), "
)


def write(folder: Path, **how: Any) -> Path:
    """Write a run in a process of its own: ``fleet_run`` is imported as the benchmarks import it."""
    asked = ", ".join(f"{name}={value!r}" for name, value in how.items())
    done = subprocess.run(
        [sys.executable, "-c", f"{WRITE}{asked})", str(folder)], cwd=BENCHMARKS, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "llama-405b"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("fleet"), ranks=RANKS, days=DAYS)


@pytest.fixture(scope="module")
def state(run_dir: Path) -> RunState:
    ledger = Ledger([run_dir], state_dir=default_state_dir([run_dir.parent]))
    ledger.refresh()
    found = ledger.run("llama-405b")
    assert found is not None
    return found


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema.load(name))


def test_every_line_is_an_event_by_its_schema(run_dir: Path) -> None:
    lines = [line for path in run_dir.glob("journal/*/*.jsonl") for line in path.read_bytes().splitlines()]
    assert len(lines) > 5_000
    for line in lines[::7]:
        event: Mapping[str, Any] = json.loads(line)
        validator("event").validate(event)
        validator(str(event["type"]).removeprefix("lastgood.")).validate(event["data"])


def test_the_run_has_its_share_of_the_reports_interruptions(state: RunState) -> None:
    assert state.unreadable == ()
    assert len(state.attempts) == 1 + round(DAYS * (419 + 47) / 54)
    reasons = Counter(event.data["reason"] for event in state.restarts)
    assert reasons["silent data corruption"] == 1
    assert reasons["faulty GPU"] > reasons["GPU HBM3 memory"] > 0


def test_it_is_alive_with_one_open_incident_and_a_checkpoint_to_go_back_to(state: RunState) -> None:
    assert state.active
    assert timestamp_of(state.last_event_at) <= 1_795_996_800  # 2026-11-30T00:00:00Z
    assert Counter(i.state for i in state.incidents if i.status != "cleared") == {"open": 1, "recovered": 1}
    assert state.last_good.trust == "trusted"
    assert state.incidents[0].resume == state.last_good


def test_verdicts_name_the_checkpoint_that_the_fold_finds_too(state: RunState) -> None:
    for incident in state.incidents:
        for verdict in incident.verdicts:
            assert (verdict.resume is None) == (verdict.status == "cleared")
            if verdict.resume is not None:
                assert incident.window is not None
                assert verdict.resume.step <= incident.window.start


def test_people_and_alerts_speak_of_the_incidents_that_there_are(state: RunState) -> None:
    said = Counter(event.type for event in state.annotations)
    assert min(said[kind] for kind in ("alert", "note", "action", "device.excursion")) > 0
    named = {event.data["incident"] for event in state.annotations if "incident" in event.data}
    standing = {incident.id: incident for incident in state.incidents if incident.status != "cleared"}
    assert named == standing.keys()
    assert all(incident.acknowledged for incident in standing.values())
    firing = [e for e in state.annotations if e.data.get("name") == "ReplayMismatch" and e.data["status"] == "firing"]
    assert {e.data["resume_step"] for e in firing} == {i.resume.step for i in standing.values() if i.resume}


def test_nodes_that_broke_are_replaced_and_ranks_move(state: RunState) -> None:
    gone = [{p.node for p in a.places} - {p.node for p in b.places} for a, b in pairwise(state.attempts)]
    told = {event.attempt: set(event.data["excluded"]) for event in state.restarts}
    assert gone == [told[attempt.number] for attempt in state.attempts[1:]]
    assert sum(map(len, gone)) > 5


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(run_dir: Path, tmp_path: Path) -> None:
    again = write(tmp_path / "again", ranks=RANKS, days=DAYS)
    other = write(tmp_path / "other", ranks=RANKS, days=DAYS, seed=2)
    assert digest(run_dir.parent) == digest(again.parent) != digest(other.parent)


def digest(folder: Path) -> str:
    total = sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        total.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return total.hexdigest()


def test_the_ledger_knows_what_a_fold_of_all_lines_knows(run_dir: Path, state: RunState) -> None:
    """Progress that is read from the ends of its files, places that are shared, lines that are read quickly."""
    events, unreadable = read_run(run_dir)
    newest = {}
    for path in sorted(run_dir.glob("journal/*/*.progress.jsonl")):
        newest[path] = path.read_bytes().splitlines()[-1]
    events += read_events(default_state_dir([run_dir.parent]) / "events" / "llama-405b.jsonl")
    plain = [event_from_dict(e.to_dict()) for e in events] + [event_from_dict(json.loads(x)) for x in newest.values()]
    topologies = {a.number: read_topology(run_dir, a.number) for a in state.attempts}
    present = {c.path: "ok" if (run_dir / c.path).exists() else "missing" for c in state.checkpoints}
    assert derive(state.run, plain, topologies=topologies, unreadable=unreadable, present=present) == state


@pytest.mark.parametrize(("how", "reason"), [({"ranks": 60}, "a multiple of 8"), ({"days": 0.1}, "at least 0.5")])
def test_what_cannot_be_written_is_refused(tmp_path: Path, how: dict[str, Any], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        write(tmp_path, **({"ranks": 64, "days": 1} | how))


@pytest.mark.slow
def test_the_benchmark_says_what_it_claims_to_say(tmp_path: Path) -> None:
    report = benchmark("--ranks", "160", "--days", "5", "--runs", "2", "--times", "1", "--out", str(tmp_path))
    assert report["one_run"]["attempts"] == 44
    assert report["many_runs"]["runs"] == 2
    assert report["one_run"]["one_more_event"]["new_bytes"] > 200
    read = {(t["of"], t["what"]): t["value"] for t in report["targets"] if "bytes read" in t["what"]}
    assert len(read) == 4
    assert set(read.values()) == {0}
    assert (
        benchmark("--ranks", "160", "--days", "5", "--runs", "0", "--times", "1", "--out", str(tmp_path))["one_run"][
            "digest"
        ]
        == report["one_run"]["digest"]
    )  # what was appended is taken away again


@pytest.mark.slow
@pytest.mark.prometheus
def test_the_series_of_the_run_reach_a_real_server() -> None:
    report = benchmark("--ranks", "64", "--days", "1", "--runs", "0", "--times", "1", "--victoria-metrics")
    found = report["victoria_metrics"]
    assert found["interval_seconds"] == 900
    assert found["samples"] > 96 * 30
    assert found["last_good_step_is_the_ledgers"]


def benchmark(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "fleet.py"), *arguments], capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr  # a busy machine misses a target
    return json.loads(done.stdout)
