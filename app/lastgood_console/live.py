"""Draw a page once, and look every two seconds whether it would look different now.

At a tick only the head of the page is drawn, with the age of its data. The page itself is drawn again when there is
news, when the visitor's theme is another one, and every ten seconds, as its words tell ages too ("open 14 min"). So a
page that is open and shows nothing new costs next to nothing, in the server and in the browser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import streamlit as st

from lastgood_console.components.heads import page_head
from lastgood_console.export.tokens import ThemeName
from lastgood_console.pause import news
from lastgood_console.shell import TICK_SECONDS, fresh_html, theme_name
from lastgood_console.store import Snapshot

DRAWN_SECONDS: Final = 10.0
"""So old the ages on a page may become, beside that of its data."""
Html = Callable[[Snapshot, float], str]
"""Writes a part of a page from what is shown and the time (unix seconds)."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a page was drawn from: the number of its snapshot, when (unix seconds), and for which theme."""

    number: int
    at: float
    theme: ThemeName

    def is_old(self, number: int, now: float, theme: ThemeName) -> bool:
        """Tell whether the page would look different now."""
        return (number, theme) != (self.number, self.theme) or now - self.at >= DRAWN_SECONDS


def live_head(headline: str, consequence: str, snapshot: Snapshot, seconds: float, *, right: Html = fresh_html) -> None:
    """Draw the head of a page, which keeps it live. ``right``: what stands at its right."""
    live_html(lambda newest, now: page_head(headline, consequence, right(newest, now)), snapshot, seconds)


def live_html(write: Html, snapshot: Snapshot, seconds: float) -> None:
    """Draw the one part of a page that is written anew at every tick, which keeps the whole page live.

    The caller draws the rest of the page from the same snapshot, outside any fragment. ``seconds``: unix seconds.
    """
    _tick(write, Drawn(snapshot.number, seconds, theme_name()))


@st.fragment(run_every=TICK_SECONDS)
def _tick(write: Html, drawn: Drawn) -> None:
    snapshot, seconds = news()
    if drawn.is_old(snapshot.number, seconds, theme_name()):
        st.rerun()
    st.html(write(snapshot, seconds))
