"""Let a visitor hold the pages still: all pages of the session show what was known when the refresh was paused.

The pages go on ticking, so the age of what they show keeps counting; only the snapshot stays the same. It is held by
the session, so other visitors and other tabs see the news all the while.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import streamlit as st

from lastgood_console.components.heads import rfc3339
from lastgood_console.components.symbols import symbol
from lastgood_console.store import Snapshot, current

_HELD: Final = "pause-held"


@dataclass(frozen=True, slots=True)
class Held:
    """What the pages show while the refresh is paused. ``since``: unix seconds."""

    snapshot: Snapshot
    since: float


def held() -> Held | None:
    """Return what this session holds still, None while its pages are live."""
    found = st.session_state.get(_HELD)
    return found if isinstance(found, Held) else None


def news() -> tuple[Snapshot, float]:
    """Return what the pages of this session show, and the time (unix seconds)."""
    store, still = current(), held()
    return (still.snapshot if still else store.snapshot()), store.clock()


def look_again() -> None:
    """Show a visitor who pauses what has just been done, and go on holding still."""
    if still := held():
        st.session_state[_HELD] = replace(still, snapshot=current().snapshot())


def paused_html() -> str:
    """Return since when the refresh is paused; nothing while it is not."""
    still = held()
    if still is None:
        return ""
    return f'<span class="lg-stale">{symbol("warning")} paused since {rfc3339(still.since)[11:19]} UTC</span>'


def pause_switch() -> None:
    """Draw the switch, in the head of every page."""
    still = held()
    label = "Continue refresh" if still else "Pause refresh"
    hint = "The pages of this tab stand still" if still else "Hold all pages of this tab still"
    st.button(label, key="pause", on_click=_turn, type="secondary" if still else "tertiary", help=hint)


def _turn() -> None:
    if held():
        st.session_state[_HELD] = None
    else:
        snapshot, seconds = news()
        st.session_state[_HELD] = Held(snapshot, seconds)
