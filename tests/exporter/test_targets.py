"""``targets.json`` is what Prometheus's file-based service discovery reads."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from lastgood.targets import write_targets


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
