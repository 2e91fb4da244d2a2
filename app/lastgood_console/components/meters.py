"""Draw the check meters: how many steps ago each check last passed, against its deadline. Silence is not health."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from lastgood.events import ProgressData
from lastgood.state import CheckStatus, RunState
from lastgood.wording import step_text
from lastgood_console.characters import escape

PROGRESS_SECONDS: Final = 30.0
LINES_UNTIL_LATE: Final = 3


@dataclass(frozen=True, slots=True)
class Meter:
    """One check: the words shown, the filled share of the bar (None: dotted line), and whether it is late."""

    check: str
    words: str
    share: float | None
    late_by: int
    title: str

    @property
    def late(self) -> bool:
        """Tell whether the deadline has passed."""
        return self.late_by > 0


def newest_step(state: RunState, progress: ProgressData | None = None) -> int:
    """Return the newest step that is known of the newest attempt."""
    step = state.attempt.last_step if state.attempt else 0
    return max(step, progress.get("step", 0) if progress else 0)


def meters(state: RunState, progress: ProgressData | None = None) -> tuple[Meter, ...]:
    """Return the meter of every check, in the order of the checks. ``progress``: the run's newest progress."""
    step = newest_step(state, progress)
    start = state.attempt.from_step if state.attempt else 0
    return tuple(meter(_with_progress(s, progress), step, start, progress) for s in state.checks)


def _with_progress(status: CheckStatus, progress: ProgressData | None) -> CheckStatus:
    passed = progress.get("passed", {}).get(status.check, -1) if progress else -1
    return replace(status, last_pass_step=passed) if passed > status.last_pass_step else status


def meter(status: CheckStatus, step: int, start: int, progress: ProgressData | None = None) -> Meter:
    """Return one meter. ``step`` is the run's newest step, ``start`` the step its newest attempt began with.

    A check of every step is journaled only in saves and every 30 s in the progress, so its passes are counted to the
    step of the newest such line, and by them it is late only after three of them without a pass.
    """
    if not status.running:
        words = "off" if status.reason == "switched off" else "not run"
        return Meter(status.check, words, None, 0, f"{status.check} is not run: {status.reason}")
    due = status.due_step
    if status.interval_steps == 1:
        step, due = _last_told(status, step, progress), _due_by_progress(status, start, progress)
    never = status.last_pass_step < 0
    since = max(0, step - (start if never else status.last_pass_step))
    late_by = max(0, step - due) if due is not None else 0
    last = "never passed" if never else f"last passed at step {step_text(status.last_pass_step)}"
    room = max(1, due - (step - since)) if due is not None else max(1, 3 * (status.interval_steps or 1), since)
    return Meter(
        check=status.check,
        words="never" if never else step_text(since),
        share=1.0 if late_by else min(1.0, since / room),
        late_by=late_by,
        title=f"{status.check} {last}" + (f", due by step {step_text(due)}" if due is not None else ""),
    )


def _last_told(status: CheckStatus, step: int, progress: ProgressData | None) -> int:
    if progress and "step" in progress:
        return max(progress["step"], status.last_pass_step)
    return step if status.last_pass_step < 0 else status.last_pass_step


def _due_by_progress(status: CheckStatus, start: int, progress: ProgressData | None) -> int | None:
    seconds = progress.get("step_seconds", 0.0) if progress else 0.0
    if not seconds > 0:
        return None
    return max(status.last_pass_step, start) + LINES_UNTIL_LATE * ceil(PROGRESS_SECONDS / seconds)


def latest(found: Sequence[Meter]) -> Meter | None:
    """Return the check that is most overdue, None when none is."""
    late = [m for m in found if m.late]
    return max(late, key=lambda m: m.late_by) if late else None


def meters_html(found: Sequence[Meter]) -> str:
    """Return the meters side by side."""
    return f'<div class="lg-meters">{"".join(_one(m) for m in found)}</div>'


def _one(m: Meter) -> str:
    kind = " lg-meter-late" if m.late else " lg-meter-off" if m.share is None else ""
    fill = "" if m.share is None else f'<i style="width:{100 * m.share:.1f}%"></i>'
    name, title = escape(m.check), escape(m.title, quote=True)
    late = " late" if m.late else ""
    return (
        f'<div class="lg-meter{kind}" title="{title}"><span>{name}</span><b>{m.words}{late}</b>'
        f'<span class="lg-bar">{fill}</span></div>'
    )
