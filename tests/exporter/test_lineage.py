"""What a state descends from, through any sequence of restarts, against a model that tracks every step."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lastgood.lineage import Segment, normalise, origin, reach, reaches, segments, unknown_root, unknown_roots
from lastgood.state import Attempt, Parent, Point

Step = tuple[int, int]
BLANK = Attempt(
    number=0,
    world_size=6,
    places=(),
    parent=None,
    parent_known=True,
    parent_verified=True,
    from_step=0,
    started_at="",
    last_event_at="",
    last_step=0,
    last_step_at="",
)


def attempt(number: int, from_step: int = 0, parent: tuple[int, int] | None = None, known: bool = True) -> Attempt:
    back = Parent(*parent, path=f"a{parent[0]}-{parent[1]}") if parent else None
    return replace(BLANK, number=number, from_step=from_step, parent=back, parent_known=known)


@st.composite
def restarts(draw: st.DrawFn) -> tuple[dict[int, Attempt], dict[int, tuple[Step, ...]], set[int]]:
    """Draw attempts, what each begins with step by step, and those whose past is unknown."""
    attempts: dict[int, Attempt] = {}
    begins: dict[int, tuple[Step, ...]] = {}
    unknown: set[int] = set()
    for number in range(1, draw(st.integers(1, 7)) + 1):
        how = draw(st.sampled_from(["scratch", "unknown", *(["resume"] * 4)])) if attempts else "scratch"
        if how == "resume":
            parent = draw(st.sampled_from(sorted(attempts)))
            step = attempts[parent].from_step + draw(st.integers(0, 5))
            attempts[number] = attempt(number, step, (parent, step))
            begins[number] = begins[parent] + tuple(
                (parent, s) for s in range(attempts[parent].from_step + 1, step + 1)
            )
            if parent in unknown:
                unknown.add(number)
        else:
            start = draw(st.integers(0, 9)) if how == "unknown" else 0
            attempts[number] = attempt(number, start, known=how == "scratch")
            begins[number] = ()
            if how == "unknown":
                unknown.add(number)
    return attempts, begins, unknown


@given(restarts(), st.integers(0, 6))
def test_the_lineage_holds_exactly_the_steps_that_the_state_went_through(
    drawn: tuple[dict[int, Attempt], dict[int, tuple[Step, ...]], set[int]], more: int
) -> None:
    attempts, begins, _ = drawn
    for number, one in attempts.items():
        end = one.from_step + more
        went = begins[number] + tuple((number, s) for s in range(one.from_step + 1, end + 1))
        chain = segments(attempts, Point(number, end))
        assert tuple((g.attempt, s) for g in chain for s in range(g.start + 1, g.end + 1)) == went


@given(restarts())
def test_reach_is_the_last_step_of_an_attempt_in_the_lineage(
    drawn: tuple[dict[int, Attempt], dict[int, tuple[Step, ...]], set[int]],
) -> None:
    attempts, _, _ = drawn
    for number, one in attempts.items():
        ends = {g.attempt: g.end for g in segments(attempts, Point(number, one.from_step))}
        for other in attempts:
            assert reach(attempts, Point(number, one.from_step), other) == ends.get(other)
            if other < number:
                assert reaches(attempts, other).get(number) == ends.get(other)


@given(restarts())
def test_an_unknown_past_is_inherited_and_can_be_vouched_for(
    drawn: tuple[dict[int, Attempt], dict[int, tuple[Step, ...]], set[int]],
) -> None:
    attempts, _, unknown = drawn
    for number in attempts:
        root = unknown_root(attempts, number)
        assert unknown_roots(attempts)[number] == root
        assert (root is not None) == (number in unknown)
        assert root is None or unknown_root(attempts, number, {root}) is None


@given(restarts())
def test_normalising_keeps_the_state_and_moves_it_to_the_newest_attempt(
    drawn: tuple[dict[int, Attempt], dict[int, tuple[Step, ...]], set[int]],
) -> None:
    attempts, begins, _ = drawn
    for number, one in attempts.items():
        chain = segments(attempts, Point(number, one.from_step + 3))
        for segment in chain:
            at = Point(segment.attempt, segment.end)
            moved = normalise(chain, at)
            own = attempts[moved.attempt]
            went = tuple((moved.attempt, s) for s in range(own.from_step + 1, moved.step + 1))
            before = tuple((at.attempt, s) for s in range(attempts[at.attempt].from_step + 1, at.step + 1))
            assert begins[moved.attempt] + went == begins[at.attempt] + before


def test_a_window_start_at_the_branch_point_belongs_to_the_child() -> None:
    chain = (Segment(1, 0, 50), Segment(2, 50, 100))
    assert normalise(chain, Point(1, 50)) == Point(2, 50)
    assert normalise(chain, Point(1, 49)) == Point(1, 49)


def test_a_restart_of_a_restart_that_never_ran_is_normalised_all_the_way() -> None:
    chain = (Segment(1, 0, 50), Segment(2, 50, 50), Segment(3, 50, 80))
    assert normalise(chain, Point(1, 50)) == Point(3, 50)


def test_a_parent_that_is_not_older_or_not_in_the_journal_counts_as_unknown() -> None:
    attempts = {2: attempt(2, 50, (3, 50)), 3: attempt(3, 50, (2, 50)), 4: attempt(4, 10, (1, 10))}
    assert origin(attempts, 2) is None
    assert [unknown_root(attempts, n) for n in (2, 3, 4)] == [2, 2, 4]
    assert segments(attempts, Point(3, 60)) == (Segment(2, 50, 50), Segment(3, 50, 60))


def test_an_attempt_that_begins_later_than_step_0_from_nothing_has_an_unknown_past() -> None:
    attempts = {1: attempt(1), 2: attempt(2, 5)}
    assert [unknown_root(attempts, n) for n in (1, 2)] == [None, 2]
