"""Hold the check meters: silence is not health, and a per-step check is not late between two progress lines."""

from __future__ import annotations

from tests.app import console_states as states

from lastgood.state import CheckStatus
from lastgood_console.components.meters import latest, meter, meters, meters_html


def status(check: str = "replay", *, interval: int | None = 50, last: int = 50, due: int | None = 200) -> CheckStatus:
    return CheckStatus(check, True, "", interval, last, None, due, 0)  # type: ignore[arg-type]


def test_it_tells_how_many_steps_ago_the_check_last_passed() -> None:
    found = meter(status(), step=95, start=0)
    assert (found.words, found.late, round(found.share or 0, 2)) == ("45", False, 0.3)


def test_past_its_deadline_it_is_late_and_the_bar_is_full() -> None:
    found = meter(status(), step=214, start=0)
    assert (found.late_by, found.share) == (14, 1.0)
    assert "164 late" in meters_html([found])


def test_a_check_that_never_passed_says_never() -> None:
    assert meter(status(last=-1, due=150), step=20, start=0).words == "never"


def test_a_check_that_is_off_has_a_word_and_a_dotted_line_but_no_bar() -> None:
    off = CheckStatus("at_rest", False, "switched off", None, -1, None, None, 0)
    cannot = CheckStatus("replay", False, "one rank", None, -1, None, None, 0)
    assert (meter(off, 10, 0).words, meter(cannot, 10, 0).words) == ("off", "not run")
    assert "lg-meter-off" in meters_html([meter(off, 10, 0)])
    assert "one rank" in meter(cannot, 10, 0).title


def test_a_check_of_every_step_is_not_late_between_two_progress_lines() -> None:
    found = meter(status("conservation", interval=1, last=75, due=78), step=100, start=0)
    assert (found.words, found.late) == ("0", False)


def test_a_check_of_every_step_is_late_after_three_progress_lines_without_a_pass() -> None:
    told = {"step": 400, "step_seconds": 1.0, "passed": {"conservation": 300}}
    ok = meter(status("conservation", interval=1, last=350, due=353), step=400, start=0, progress=told)  # type: ignore[arg-type]
    late = meter(status("conservation", interval=1, last=300, due=303), step=400, start=0, progress=told)  # type: ignore[arg-type]
    assert (ok.late, ok.words) == (False, "50")
    assert (late.late_by, late.words) == (10, "100")


def test_progress_brings_newer_passes_than_the_journal() -> None:
    found = meters(states.clean(ended=False), {"step": 160, "passed": {"replay": 155}})
    assert {m.check: m.words for m in found}["replay"] == "5"


def test_the_most_overdue_check_is_named() -> None:
    late = latest(meters(states.late()))
    assert late is not None
    assert (late.check, late.late_by) == ("replay", 514)
    assert latest(meters(states.clean())) is None
