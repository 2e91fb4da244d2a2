"""``targets.json`` is what Prometheus's file-based service discovery reads."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.exporter.histories import BEGIN, History

from lastgood.state import RunState
from lastgood.targets import GIVEN_UP_SECONDS, MOST_TARGETS, Discovery, read_targets, withdraw_targets, write_targets


def test_targets_are_in_the_order_of_the_ranks_and_carry_no_labels(tmp_path: Path) -> None:
    path = write_targets(tmp_path, [("node-b", 9470), ("node-a", 9471)])
    assert path == tmp_path / "targets.json"
    assert json.loads(path.read_text()) == [{"targets": ["node-b:9470", "node-a:9471"]}]


def test_a_rank_without_an_endpoint_is_left_out(tmp_path: Path) -> None:
    path = write_targets(tmp_path, [("node-a", None), ("fd00::7", 9470)])
    assert json.loads(path.read_text()) == [{"targets": ["[fd00::7]:9470"]}]


def test_no_endpoint_at_all_is_an_empty_list(tmp_path: Path) -> None:
    assert json.loads(write_targets(tmp_path, []).read_text()) == []


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = write_targets(tmp_path, [("node-a", 9470)])
    with path.open() as reader:
        write_targets(tmp_path, [("node-a", 9471)] * 1000)
        assert json.load(reader) == [{"targets": ["node-a:9470"]}]
    assert [found.name for found in tmp_path.iterdir()] == ["targets.json"]


def test_prometheus_as_another_user_may_read_it(tmp_path: Path) -> None:
    path = write_targets(tmp_path, [("node-a", 9470)])
    other = tmp_path / "other"
    other.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_an_attempt_that_ends_takes_its_targets_back_but_not_those_of_the_next(tmp_path: Path) -> None:
    first = write_targets(tmp_path, [("node-a", 9470)]).read_bytes()
    write_targets(tmp_path, [("node-a", 9471)])
    withdraw_targets(tmp_path, first)
    assert read_targets(tmp_path).addresses == ("node-a:9471",)
    withdraw_targets(tmp_path, (tmp_path / "targets.json").read_bytes())
    assert json.loads((tmp_path / "targets.json").read_text()) == []


class Runs:
    """Know the given runs, each in a folder of its name."""

    def __init__(self, folder: Path, *found: RunState) -> None:
        self.folder, self.found = folder, found
        for state in found:
            (folder / state.run).mkdir(exist_ok=True)

    def runs(self) -> dict[str, RunState]:
        return {state.run: state for state in self.found}

    def path_of(self, name: str) -> Path | None:
        return self.folder / name


def started(run: str, **more: Any) -> RunState:
    return History(run=run, **more).start().state()


def test_discovery_knows_the_ranks_of_every_active_run_under_no_label_of_ours(tmp_path: Path) -> None:
    runs = Runs(tmp_path, started("a"), started("b"), History(run="c").start().end(5, "completed").state())
    for name in "abc":
        write_targets(tmp_path / name, [("node-" + name, 9470)])
    assert Discovery(runs, clock=lambda: BEGIN).groups() == [
        {"targets": ["node-a:9470"], "labels": {"__meta_lastgood_run": "a"}},
        {"targets": ["node-b:9470"], "labels": {"__meta_lastgood_run": "b"}},
    ]


def test_a_run_without_a_word_for_a_day_is_given_up(tmp_path: Path) -> None:
    runs = Runs(tmp_path, started("a"))
    write_targets(tmp_path / "a", [("node-a", 9470)])
    assert len(Discovery(runs, clock=lambda: BEGIN + GIVEN_UP_SECONDS).groups()) == 1
    assert Discovery(runs, clock=lambda: BEGIN + GIVEN_UP_SECONDS + 2).groups() == []


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", "[" * 100_000, '{"targets": ["a:1"]}', '[{"targets": [5, "x y:1", "a:1/../x", "a:", "$(x):1"]}]'],
)
def test_what_is_no_list_of_addresses_has_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "targets.json").write_text(content)
    assert read_targets(tmp_path).addresses == ()


BAD = ["h:99999", "h:0", "h:007", "%:1", ":::::1", "[]:1", "[h]:1", "[fe80::1%e th]:1", "-a:1", "a-:1", "h:1\n"]
GOOD = ["node-a:9470", "10.0.0.7:65535", "[fd00::7]:1", "[fe80::1%eth0]:9470", "n_1.cluster.local:9470"]


def write(path: Path, *targets: Any) -> None:
    path.joinpath("targets.json").write_text(json.dumps([{"targets": list(targets)}]))


def test_only_addresses_are_targets_each_once(tmp_path: Path) -> None:
    write(tmp_path, *GOOD, *BAD, *GOOD, 7)
    found = read_targets(tmp_path)
    assert found.addresses == tuple(GOOD)
    assert found.left_out == "left out what is no host:port, such as 'h:99999'"


def test_no_more_targets_are_taken_than_the_largest_job_has(tmp_path: Path) -> None:
    write(tmp_path, *(f"a{n}:1" for n in range(MOST_TARGETS + 5)))
    found = read_targets(tmp_path)
    assert (len(found.addresses), found.left_out) == (MOST_TARGETS, "left out 5 targets: 32768 of one run are taken")
    write(tmp_path, *(f"a{n}:1" for n in range(500_000)))
    assert read_targets(tmp_path).addresses == ()


def test_what_is_left_out_is_said_once(tmp_path: Path) -> None:
    runs, said = Runs(tmp_path, started("a")), list[str]()
    write(tmp_path / "a", "h:99999", "h:1")
    discovery = Discovery(runs, said.append, lambda: BEGIN)
    assert discovery.groups() == discovery.groups() == [{"targets": ["h:1"], "labels": {"__meta_lastgood_run": "a"}}]
    assert said == [f"{tmp_path}/a/targets.json: left out what is no host:port, such as 'h:99999'"]


def test_a_link_is_not_followed_and_a_pipe_not_waited_for(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('[{"targets": ["a:1"]}]')
    (tmp_path / "targets.json").symlink_to(other)
    assert read_targets(tmp_path).addresses == ()
    (tmp_path / "targets.json").unlink()
    os.mkfifo(tmp_path / "targets.json")
    assert read_targets(tmp_path).addresses == ()
