"""Draw the timeline of an incident with the choice of the shown time, and tell the rest of the page what is shown.

The address holds the choice: ``scope``, and ``from`` and ``to`` once somebody zoomed. The browser zooms by itself and
tells here a moment later, so that marks are taken apart or put together, and the pictures below follow.
"""

from __future__ import annotations

from functools import partial
from typing import Final, cast

import streamlit as st

from lastgood.state import Incident, RunState
from lastgood_console.cache import step_clock, timeline_picture
from lastgood_console.components.heads import section
from lastgood_console.components.time_frame import SCOPES, Frame, Scope, address_time, frame_of, frame_words
from lastgood_console.components.timeline_chart import ZOOM, spoken
from lastgood_console.shell import address_choice, theme_name, to_address

ZOOM_NAMES: Final = ("from", "to")
"""What the address calls the ends of a zoom."""
_TURNS: Final = "timeline-turns"
_ENDS: Final = "timeline-ends"
_HALF: Final = 0.5
_MOVES: Final = {"earlier": "Earlier", "later": "Later", "closer": "Zoom in", "farther": "Zoom out"}


def shown_frame(state: RunState, incident: Incident) -> Frame:
    """Return the time that the address asks for."""
    asked = st.query_params
    return frame_of(state, incident, step_clock(state), _scope(), asked.get("from"), asked.get("to"))


def _scope() -> Scope:
    asked = st.query_params.get("scope", "")
    return cast(Scope, asked) if asked in SCOPES else "incident"


def timeline_panel(state: RunState, incident: Incident) -> Frame:
    """Draw the timeline; return the shown time."""
    frame = shown_frame(state, incident)
    st.html(section("Timeline", "drag to move, Ctrl and scroll to zoom, double-click to reset · UTC, steps beside it"))
    _choice(frame, others=len(state.incidents) > 1)
    key = f"timeline-{incident.run}-{incident.id}-{_scope()}-{_turn()}"
    picture, words = timeline_picture(state, incident, frame, theme_name()), spoken(state, incident)
    st.vega_lite_chart(
        spec=picture, theme=None, width="stretch", key=key, alt=words, on_select=partial(_zoomed, key),
        selection_mode=ZOOM,
    )  # fmt: skip
    return frame


def _choice(frame: Frame, *, others: bool) -> None:
    """Draw the scopes, and moving and zooming for those who use a keyboard. ``others``: the run has more incidents."""
    with st.container(horizontal=True, vertical_alignment="center", key="lg-frame"):
        address_choice(
            "Shown time", "scope", tuple(SCOPES), _scope(), usual="incident", words=SCOPES.__getitem__,
            hidden=True, clears=ZOOM_NAMES,
        )  # fmt: skip
        for move, words in _MOVES.items():
            st.button(words, key=f"timeline-{move}", type="tertiary", on_click=_move, args=(move, frame))
        if frame.zoomed:
            st.button("Reset zoom", key="timeline-reset", on_click=_reset, type="tertiary")
        ignored = not frame.zoomed and any(st.query_params.get(name) for name in ZOOM_NAMES)
        odd = " · from and to of the address are not two times in order: ignored" if ignored else ""
        alone = " · findings and alerts of this incident alone" if others and _scope() != "incident" else ""
        st.html(f'<span class="lg-caption">{frame_words(frame)} UTC{alone}{odd}</span>')


def _move(move: str, frame: Frame) -> None:
    shares = {"earlier": -_HALF, "later": _HALF}
    _show(frame.moved(shares[move]) if move in shares else frame.scaled(_HALF if move == "closer" else 1 / _HALF))


def _show(frame: Frame) -> None:
    """Show a time that the browser does not zoom to by itself."""
    _write(address_time(frame.low), address_time(frame.high))


def _reset() -> None:
    _write("", "")


def _write(*ends: str) -> None:
    to_address(dict(zip(ZOOM_NAMES, ends, strict=True)))


def _turn() -> int:
    """Return the number of the picture: a new one, in which the browser's zoom is forgotten, for another time.

    Buttons, links and the browser's Back lead there; what the browser zoomed to by itself it shows already.
    """
    ends = tuple(st.query_params.get(name, "") for name in ZOOM_NAMES)
    turns: int = st.session_state.get(_TURNS, 0)
    if st.session_state.get(_ENDS, ends) != ends:
        st.session_state[_TURNS] = turns = turns + 1
    st.session_state[_ENDS] = ends
    return turns


def _zoomed(key: str) -> None:
    """Write into the address what the browser zoomed to."""
    zoom = st.session_state[key].get("selection", {}).get(ZOOM, {}).get("at", [])
    low, high = (address_time(at / 1000) for at in zoom) if len(zoom) == 2 else ("", "")
    _write(low, high)
    st.session_state[_ENDS] = (low, high)
