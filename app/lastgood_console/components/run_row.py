"""Draw a run's row on the overview: name and state, last good, meters, strip."""

from __future__ import annotations

from typing import Final

from lastgood.events import ProgressData
from lastgood.state import RunState
from lastgood.wording import age_text, moment, resume_headline
from lastgood_console.characters import escape
from lastgood_console.components.decision import is_open
from lastgood_console.components.meters import meters, meters_html
from lastgood_console.components.strip import is_last_good, layout, strip_html
from lastgood_console.components.symbols import marked, trust_mark
from lastgood_console.components.tables import attempts_text
from lastgood_console.components.triage import RunRow
from lastgood_console.hearing import unheard_strip

NEWEST_SAVES: Final = 9
TICK_GAP: Final = 0.16


def run_html(found: RunRow, progress: ProgressData | None, now: str) -> str:
    """Return the row without its link. ``now``: RFC 3339."""
    state, waiting = found.state, found.open_incidents
    strip = layout(state, waiting[0] if waiting else None, newest_saves=NEWEST_SAVES, tick_gap=TICK_GAP)
    if found.unheard:
        strip = unheard_strip(strip)
    note = " " + marked("warning", found.note) if found.note else ""
    origin = " · by metrics alone" if state.origin == "metrics" else ""
    about = f'<div class="lg-sub">{attempts_text(state.attempt, progress)}{origin}</div>'
    cells = (
        f"<h3>{escape(state.run)}</h3>{marked(found.symbol, found.words)}{note}{about}",
        f'{_caption("Last good")}<div class="lg-big">{resume_headline(state.last_good)}</div>{_trust(state, now)}',
        _caption("Steps since each check passed") + meters_html(meters(state, progress)),
        _caption(incidents_words(found)) + strip_html(strip, names=False),
    )
    return f'<div class="lg-run">{"".join(f"<div>{cell}</div>" for cell in cells)}</div>'


def _caption(words: str) -> str:
    return f'<span class="lg-caption">{escape(words)}</span>'


def _trust(state: RunState, now: str) -> str:
    good = state.last_good
    if not good.exists:
        return f'<span class="lg-sub">{escape(good.reason)}</span>'
    saved = next((c.saved_at for c in state.checkpoints if is_last_good(c, state)), None)
    age = f"{age_text((moment(now) - moment(saved)).total_seconds())} old" if saved else ""
    return f'{trust_mark(good.trust)} <span class="lg-sub">{age}</span>'


def incidents_words(found: RunRow) -> str:
    """Say how many incidents a run has, open ones first."""
    waiting, others = found.open_incidents, [i for i in found.state.incidents if not is_open(i)]
    first = f"{len(waiting)} open incident{'' if len(waiting) == 1 else 's'}" if waiting else "no open incident"
    return " · ".join([first, *([waiting[0].id] if waiting else []), *([f"{len(others)} past"] if others else [])])
