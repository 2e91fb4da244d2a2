"""What the terminal tells, and what follows a verdict."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from lastgood.events import Event
from lastgood.state import Attempt, Cost, Incident, LastGood, Place, RunState, Suspect, Verdict
from lastgood_console.demo.options import Options
from lastgood_console.demo.reading import StepLine
from lastgood_console.demo.relaunch import Relaunch, Rest, Roster, next_attempt, spent
from lastgood_console.demo.screen import (
    STARTING,
    PlainScreen,
    View,
    drawn,
    introduction,
    loss_text,
    sparkline,
)
from lastgood_console.demo.story import moments, seats

ROSTER = Roster(("node-a", "node-b", "node-c"), ("node-d",))
PLACES = tuple(Place(rank, f"node-{'abc'[rank // 2]}", f"cpu-{rank % 2}", rank % 2) for rank in range(6))
RESUME = LastGood(1, 50, "checkpoints/a1-step-000050", "trusted", "newest trusted")
ACCUSED = Suspect(3, "node-b", "cpu-1", 1, "accused")


def at(second: int) -> str:
    return f"2026-11-29T02:58:{second:02}.000000Z"


def event(kind: str, second: int, step: int | None = None, attempt: int = 1, **data: Any) -> Event:
    return Event(f"{kind}-{second}", "/lastgood/demo/1", kind, at(second), "demo", attempt, data, step=step)


def attempt(end: str | None = "integrity", number: int = 1) -> Attempt:
    ended = None if end is None else at(9)
    return Attempt(number, 6, PLACES, None, True, True, 0, at(0), at(9), 100, at(9), ended, end, 3)


def verdict(**changes: Any) -> Verdict:
    base = Verdict(
        "v-1", 1, 100, at(8), ("f-1",), "attributed", "gpu", (ACCUSED,), "persistent", "exact", (), (), RESUME, "stop"
    )  # fmt: skip
    return replace(base, **changes)


def state(*verdicts: Verdict, injections: tuple[Event, ...] = (), incidents: tuple[Incident, ...] = ()) -> RunState:
    return RunState(
        run="demo", attempts=(attempt(),), rounds=(), checks=(), findings=(), verdicts=verdicts, incidents=incidents,
        checkpoints=(), failed_saves=(), injections=injections, restarts=(), annotations=(), last_good=RESUME,
        first_event_at=at(0), last_event_at=at(9), event_count=1, events_digest="0" * 64,
    )  # fmt: skip


# --- what follows a verdict ------------------------------------------------------------------------------------------


def test_an_accused_node_is_replaced_in_its_place_by_the_spare() -> None:
    following = next_attempt(state(verdict()), ROSTER)
    assert following == Relaunch(Roster(("node-a", "node-d", "node-c"), ()), RESUME.path, 50, ("node-b",))


def test_a_confirmed_verdict_without_a_suspect_goes_on_with_the_same_nodes() -> None:
    following = next_attempt(state(verdict(status="confirmed", scope="job", suspects=())), ROSTER)
    assert following == Relaunch(ROSTER, RESUME.path, 50, ())


def test_a_candidate_is_never_left_out_by_itself() -> None:
    candidates = (replace(ACCUSED, role="candidate"), Suspect(1, "node-a", "cpu-1", 1, "candidate"))
    following = next_attempt(state(verdict(status="undecided", suspects=candidates)), ROSTER)
    assert following == Rest(
        "No second attempt: the verdict is undecided, so a person must say which node to leave out."
    )


@pytest.mark.parametrize(
    ("verdicts", "roster", "reason"),
    [
        ((), ROSTER, "No verdict stopped it."),
        ((verdict(action="record"),), ROSTER, "No verdict stopped it."),
        ((verdict(resume=None),), ROSTER, "names no checkpoint to resume from"),
        ((verdict(resume=LastGood(1, -1, "", "missing", "")),), ROSTER, "names no checkpoint to resume from"),
        ((verdict(),), Roster(ROSTER.nodes), "1 nodes to replace and 0 spare"),
        ((verdict(attempt=7),), ROSTER, "No verdict stopped it."),
    ],
)
def test_nothing_follows_without_a_verdict_a_checkpoint_and_a_node(
    verdicts: tuple[Verdict, ...], roster: Roster, reason: str
) -> None:
    following = next_attempt(state(*verdicts), roster)
    assert isinstance(following, Rest)
    assert reason in following.reason


@pytest.mark.parametrize(("permanent", "expected"), [((), False), ((False,), True), ((True,), False)])
def test_a_fault_that_happens_once_is_spent_when_it_happened(permanent: tuple[bool, ...], expected: bool) -> None:
    injected = tuple(event("injection", 5, 67, permanent=p) for p in permanent)
    assert spent(state(injections=injected)) is expected


# --- what is told ----------------------------------------------------------------------------------------------------


def told(*events: Event) -> list[str]:
    return [moment.text for moment in moments(state(), events)]


def test_events_are_told_in_the_order_of_time() -> None:
    events = (event("checkpoint.saved", 2, 25, path="b"), event("checkpoint.saved", 1, 0, path="a"))
    assert told(*events) == ["saved a", "saved b"]


def test_an_attempt_says_where_it_runs_and_what_it_resumes_from() -> None:
    parent = {"attempt": 1, "step": 50, "path": "checkpoints/a1-step-000050"}
    assert told(event("run.started", 1, world_size=6, parent=parent)) == [
        "attempt 1 starts: 6 ranks on node-a, node-b and node-c, from checkpoints/a1-step-000050"
    ]


def test_an_injection_on_every_rank_is_one_line() -> None:
    injected = [
        event("injection", s, 67, site="reduce-all", rank=s, tensor="bucket 0", detail="0.4 read as 4")
        for s in (1, 2, 3)
    ]
    assert told(*injected) == ["injected on purpose on every rank: bucket 0, 0.4 read as 4"]


def test_rounds_are_told_with_their_odd_ranks_and_reasons() -> None:
    odd = [{"rank": 3, "result": "failed", "reason": ""}]
    rounds = (
        check(1, "replay", "audit", "passed"),
        check(2, "replica", "save", "passed"),
        check(3, "replay", "audit", "failed", exceptions=odd),
        check(4, "replay", "immediate", "not_run", reason="switched off"),
    )
    assert told(*rounds) == [
        "replay passed",
        "replay failed on rank 3",
        "immediate replay not run: switched off",
    ]


def check(second: int, name: str, phase: str, result: str, **more: Any) -> Event:
    data = {"check": name, "phase": phase, "result": result, "reason": "", "exceptions": [], **more}
    return event("check", second, 50, **data)


def test_an_excursion_is_told_when_it_begins_and_an_error_counter_when_it_grows() -> None:
    def strayed(second: int, state: str, ended: str | None, text: str) -> Event:
        return event("device.excursion", second, 49, state=state, started=at(1), ended=ended, text=text)

    told = [strayed(1, "started", None, "3 °C left"), strayed(3, "ended", at(3), "3 °C left"),
            strayed(4, "ended", at(1), "1 new error")]  # fmt: skip
    assert [m.text for m in moments(state(), told)] == ["device excursion: 3 °C left", "device excursion: 1 new error"]


def test_a_verdict_names_the_device_and_the_checkpoint() -> None:
    suspect = {"rank": 3, "node": "node-b", "gpu_uuid": "cpu-1", "slot": 1, "role": "accused"}
    resume = {"step": 50, "path": "checkpoints/a1-step-000050"}
    line = event("verdict", 1, 100, status="attributed", suspects=[suspect], resume=resume, action="stop")
    assert told(line) == ["verdict: attributed to rank 3 (node-b, slot 1); resume from checkpoints/a1-step-000050"]


def test_a_refused_save_is_not_a_failed_one() -> None:
    assert told(
        event("checkpoint.failed", 1, 75, path="p", reason="integrity"),
        event("checkpoint.failed", 2, 75, path="p", reason="disk full"),
    ) == ["refused to save p: a check failed", "could not save p: disk full"]


def test_the_nodes_show_their_ranks_and_the_spare() -> None:
    rows = seats(None, ROSTER.nodes, 2, ROSTER.spares)
    assert [(row.node, len(row.ranks), row.role) for row in rows] == [
        ("node-a", 2, "used"), ("node-b", 2, "used"), ("node-c", 2, "used"), ("node-d", 0, "spare"),
    ]  # fmt: skip
    assert rows[1].ranks == ((2, "running"), (3, "running"))


def incident() -> Incident:
    return Incident(
        id="r-1", aliases=(), run="demo", state="open", status="attributed", scope="gpu", suspects=(ACCUSED,),
        nature="persistent", confidence="exact", check="replay", attempt=1, step=100, findings=(), verdicts=(),
        window=None, reasons_for=(), reasons_against=(), unknown=(), resume=RESUME, covered=(), opened_at=at(8),
        recovered_at=None, recovered_by=None, closed_at=None, closed_by=None, cost=Cost(50, 5.0, 0.01, True),
    )  # fmt: skip


def test_an_accused_device_is_marked_where_it_sits_and_after_it_was_left_out() -> None:
    here = seats(state(incidents=(incident(),)), ROSTER.nodes, 2, ROSTER.spares)
    assert here[1].ranks == ((2, "ended"), (3, "accused"))
    after = seats(state(incidents=(incident(),)), ("node-a", "node-d", "node-c"), 2, ())
    assert (after[1].ranks, after[3].node, after[3].role) == (((2, "ended"), (3, "ended")), "node-b", "left out")
    console, out = plain(160)
    console.print(drawn(view(seats=after)))
    assert "node-b left out ◆3 accused" in out.getvalue()


# --- how it is drawn -------------------------------------------------------------------------------------------------


def plain(width: int = 100) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=False, color_system=None, width=width), out


def view(**changes: Any) -> View:
    base: Mapping[str, Any] = {
        "options": Options(),
        "attempt": 1,
        "doing": "training",
        "seats": seats(None, ROSTER.nodes, 2, ROSTER.spares),
        "lines": [StepLine(24, 3.1, {}), StepLine(25, 2.75, {})],
        "passed": {"replay": (50, ""), "replica": (-1, ""), "conservation": (-1, "one rank")},
        "moments": moments(state(), [event("checkpoint.saved", 2, 25, path="checkpoints/a1-step-000025")]),
    }
    return View(**{**base, **changes})


def test_the_live_picture_holds_nodes_step_loss_checks_and_moments() -> None:
    console, out = plain(120)
    console.print(drawn(view()))
    text = out.getvalue()
    for part in ("node-b •2 •3", "node-d spare", "step 25 of 150", "loss 2.750 (rank 0)", "replay passed at 50"):
        assert part in text
    assert "replica not yet" in text
    assert "conservation not run (one rank)" in text
    assert "02:58:02  step 25  saved checkpoints/a1-step-000025" in text


def test_without_a_terminal_everything_is_told_once_and_without_control_codes() -> None:
    console, out = plain()
    with PlainScreen(console) as screen:
        screen.show(view())
        screen.show(view())
    assert out.getvalue().splitlines() == [
        "Attempt 1: starting processes.",
        "          step 25   loss 2.750",
        "02:58:02  step 25  saved checkpoints/a1-step-000025",
    ]
    assert "\x1b" not in out.getvalue()


def test_a_slow_start_gives_a_sign_of_life_every_ten_seconds() -> None:
    console, out = plain()
    with PlainScreen(console) as screen:
        for seconds in (0, 9, 12, 13, 21, 23):
            screen.show(view(doing=STARTING, seconds=seconds, lines=[], moments=()))
        screen.show(view(seconds=40, lines=[], moments=()))
    assert out.getvalue().splitlines() == [
        "Attempt 1: starting processes.",
        "          still starting: 12 s",
        "          still starting: 23 s",
    ]


def test_the_live_picture_counts_the_seconds_of_the_attempt() -> None:
    console, out = plain(120)
    console.print(drawn(view(doing=STARTING, seconds=12)))
    assert "attempt 1, starting processes, 12 s" in out.getvalue()


def test_a_loss_that_is_no_number_is_said_and_drawn() -> None:
    assert loss_text(None) == "not a number"
    assert sparkline([1.0, None, 2.0]) == "▁×█"
    assert len(sparkline([float(n) for n in range(100)], 40)) == 40


def test_the_introduction_says_what_is_simulated_and_what_is_injected() -> None:
    text = " ".join(introduction(Options()))
    assert "The nodes are simulated" in text
    assert "injected on purpose at step 67 on rank 3 (node-b, slot 1)" in text
    assert "The product's default, a replay at every save too (--save-probe), would find this at save 75." in text
    assert "It is switched off here, to show a suspect checkpoint." in text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (Options(replay=False), "nothing will notice it"),
        (Options(fault="nan", replay=False), "nothing can tell a broken device from broken data"),
        (Options(fault="none"), "No fault is injected."),
        (Options(fault="reduce-all"), "at step 67 on every rank"),
    ],
)
def test_the_introduction_says_what_the_options_hide(options: Options, sentence: str) -> None:
    assert sentence in " ".join(introduction(options))


def test_a_replay_at_every_save_is_said_to_be_the_products_default() -> None:
    sentence = "also runs at every save (--save-probe), which is the product's default"
    assert sentence in " ".join(introduction(Options(save_probe=True)))
    assert sentence in " ".join(introduction(Options(save_probe=True, fault="nan")))
    assert sentence not in " ".join(introduction(Options(save_probe=True, replay=False)))


def test_a_save_that_would_find_nothing_sooner_is_not_mentioned() -> None:
    assert "--save-probe" not in " ".join(introduction(Options(step=1)))
