"""Topology files: full or a delta, and never half a truth."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.errors import JournalError
from lastgood.state import Place
from lastgood.topology_files import Topologies, read_topology, topology_name, write_topology


def places(nodes: list[str], per_node: int = 2) -> list[Place]:
    world = range(len(nodes) * per_node)
    return [Place(rank, nodes[rank // per_node], f"cpu-{rank % per_node}", rank % per_node) for rank in world]


def test_an_attempt_reads_as_it_was_written(tmp_path: Path) -> None:
    assert write_topology(tmp_path, 1, places(["a", "b", "c"])) == "topology/1.json.gz"
    assert read_topology(tmp_path, 1) == tuple(places(["a", "b", "c"]))
    assert [file.name for file in (tmp_path / "topology").iterdir()] == ["1.json.gz"]


def test_a_restart_that_changes_one_node_is_a_small_delta(tmp_path: Path) -> None:
    nodes = [f"node-{n}" for n in range(2048)]
    write_topology(tmp_path, 1, places(nodes, 8))
    for attempt in (2, 3):
        nodes[7] = f"spare-{attempt}"
        write_topology(tmp_path, attempt, places(nodes, 8))
    assert read_topology(tmp_path, 3)[60] == Place(60, "spare-3", "cpu-4", 4)
    assert (tmp_path / topology_name(3)).stat().st_size < 400
    (tmp_path / topology_name(2)).unlink()
    assert read_topology(tmp_path, 3)[56].node == "spare-3"


WORLDS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=8), min_size=1, max_size=6)


@given(WORLDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_any_sequence_of_restarts_reads_back(tmp_path: Path, worlds: list[list[str]]) -> None:
    for attempt, nodes in enumerate(worlds, 1):
        write_topology(tmp_path, attempt, places(nodes))
    assert [read_topology(tmp_path, n) for n, _ in enumerate(worlds, 1)] == [tuple(places(nodes)) for nodes in worlds]


def test_the_same_topology_is_the_same_bytes(tmp_path: Path) -> None:
    write_topology(tmp_path / "x", 1, places(["a"]))
    write_topology(tmp_path / "y", 1, places(["a"]))
    assert (tmp_path / "x" / topology_name(1)).read_bytes() == (tmp_path / "y" / topology_name(1)).read_bytes()


def test_places_out_of_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="every rank once, in order"):
        write_topology(tmp_path, 1, places(["a"])[::-1])


def content(**changes: object) -> bytes:
    columns = {"nodes": ["a"], "rank": [0], "node": [0], "slot": [0], "gpu_uuid": ["cpu-0"]}
    return gzip.compress(json.dumps({"format": 1, "world_size": 1, "base": None} | columns | changes).encode(), mtime=0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no gzip", r"topology/1\.json\.gz: cannot be read"),
        (content()[:-9], "cannot be read"),
        (gzip.compress(b"[]", mtime=0), "not a topology"),
        (content(format=2), "reads topology format 2, not 1"),
        (content(node=[7]), "not a topology"),
        (content(rank=[]), "not a topology"),
        (content(rank=[0, 0]), "not a topology"),
        (content(world_size=2), "every rank from 0 to 1"),
        (content(base=1), "itself a delta"),
        (content(base="x"), "not a topology"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "topology").mkdir()
    (tmp_path / topology_name(1)).write_bytes(data)
    with pytest.raises(JournalError, match=reason):
        read_topology(tmp_path, 1)


def test_a_missing_file_and_a_link_out_of_the_run_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        read_topology(tmp_path, 1)
    write_topology(tmp_path / "other", 1, places(["a"]))
    (tmp_path / "topology").mkdir()
    (tmp_path / topology_name(1)).symlink_to(tmp_path / "other" / topology_name(1))
    with pytest.raises(JournalError, match="cannot be read"):
        read_topology(tmp_path, 1)


@given(WORLDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_one_reader_of_all_attempts_reads_what_each_reads_alone(tmp_path: Path, worlds: list[list[str]]) -> None:
    for attempt, nodes in enumerate(worlds, 1):
        write_topology(tmp_path, attempt, places(nodes))
    files = Topologies(tmp_path)
    for attempt in (*range(len(worlds), 0, -1), *range(1, len(worlds) + 1)):
        assert files.read(attempt) == read_topology(tmp_path, attempt)


def test_places_and_topologies_that_did_not_change_are_one_object(tmp_path: Path) -> None:
    nodes = [f"node-{n}" for n in range(32)]
    for attempt, spare in enumerate(("node-7", "spare", "spare"), 1):
        nodes[7] = spare
        write_topology(tmp_path, attempt, places(nodes))
    files = Topologies(tmp_path)
    one, two, three = map(files.read, (1, 2, 3))
    assert one[0] is two[0]
    assert two is three
