"""Which devices still wait for a replay: what the quick way says is what walking over everything says."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exporter.test_lineage import attempt

from lastgood.audits import Audits, Presence
from lastgood.events import Result
from lastgood.state import Attempt, CheckRound, Place, Point
from lastgood.windows import Rounds

RESULTS: list[Result] = ["passed", "failed", "not_run"]
NODES = st.lists(st.sampled_from("abcde"), max_size=4)


def places(nodes: list[str]) -> tuple[Place, ...]:
    """Return one rank on each node; a node that comes twice is one device with two ranks."""
    return tuple(PLACES.setdefault((rank, node), Place(rank, node, "GPU-0", 0)) for rank, node in enumerate(nodes))


PLACES: dict[tuple[int, str], Place] = {}


@st.composite
def runs(draw: st.DrawFn) -> tuple[dict[int, Attempt], list[CheckRound]]:
    attempts, rounds = {}, []
    for number in draw(st.lists(st.integers(1, 9), unique=True, min_size=1, max_size=6)):
        where = places(draw(NODES))
        shared = where if draw(st.booleans()) else tuple(replace(place) for place in where)
        attempts[number] = replace(attempt(number), places=shared, world_size=len(where))
        for step in draw(st.lists(st.integers(0, 3), max_size=3)):
            odd = draw(st.dictionaries(st.integers(0, 3), st.sampled_from(RESULTS), max_size=3))
            result = draw(st.sampled_from(RESULTS))
            found = {rank: (word, "") for rank, word in odd.items()}
            rounds.append(CheckRound("replay", "audit", number, step, step, "", result, "", found))
    return attempts, rounds


def walked(attempts: dict[int, Attempt], rounds: list[CheckRound], point: Point) -> set[tuple[str, str]] | None:
    """Return the devices that wait, by the definition."""

    def devices(number: int) -> set[tuple[str, str]]:
        return {(p.node, p.gpu_uuid) for p in attempts[number].places}

    def passed(number: int, step: int) -> set[tuple[str, str]]:
        late = [r for r in rounds if r.attempt == number and r.state_step >= step and r.result != "not_run"]
        never = {p for p in attempts[number].places if all(r.result_of(p.rank) != "passed" for r in late)}
        return devices(number) - {(p.node, p.gpu_uuid) for p in never}

    if not attempts[point.attempt].places:
        return None
    later = (passed(number, -1) for number in attempts if number > point.attempt)
    return devices(point.attempt) - passed(point.attempt, point.step) - set().union(*later)


@given(runs(), st.data())
@settings(max_examples=500)
def test_who_waits_is_who_has_passed_nowhere(
    run: tuple[dict[int, Attempt], list[CheckRound]], data: st.DataObject
) -> None:
    attempts, rounds = run
    point = Point(data.draw(st.sampled_from(sorted(attempts))), data.draw(st.integers(0, 4)))
    assert Audits(attempts, Rounds.index(rounds)).waiting(point) == walked(attempts, rounds, point)


@given(runs())
def test_presence_knows_every_rank_of_every_device(run: tuple[dict[int, Attempt], list[CheckRound]]) -> None:
    attempts, _ = run
    known = Presence(attempts)
    for number, one in attempts.items():
        for place in one.places:
            same = {p.rank for p in one.places if p.node == place.node}
            assert known.ranks((place.node, place.gpu_uuid), number) == same
        assert known.ranks(("nowhere", "GPU-0"), number) == set()
