"""Work out, once the console has started, what its first visitors will ask for.

The first visitor of a fleet's run would wait a second: for the libraries that draw, and for each picture. This runs in
a thread of its own meanwhile. Who comes sooner waits no longer than without it: what both need is worked out once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread
from typing import Final

from lastgood_console.export.tokens import ThemeName
from lastgood_console.store import Store

THEMES: Final[tuple[ThemeName, ...]] = ("light", "dark")

log = logging.getLogger("lastgood.console")


def warm_up(store: Store, then: Callable[[], None]) -> Thread:
    """Start the thread and return it. ``then`` is called in it at the end, in any case."""
    thread = Thread(target=_warm, args=(store, then), name="lastgood-warming", daemon=True)
    thread.start()
    return thread


def _warm(store: Store, then: Callable[[], None]) -> None:
    try:
        work_out(store)
    except Exception:  # a visitor's page says what is wrong, where it matters
        log.debug("what the first visitors ask for could not be worked out", exc_info=True)
    finally:
        then()


def work_out(store: Store) -> None:
    """Work out the pictures of Overview and Nodes, and those of the incident that the page Incident opens with."""
    from lastgood_console import cache  # it loads the libraries
    from lastgood_console.components.selection import select
    from lastgood_console.components.time_frame import frame_of

    snapshot = store.snapshot()
    if not snapshot.states:
        return
    fleet = cache.fleet_cells(snapshot, store.clock())
    chosen = select(snapshot.states, None, None)
    for theme in THEMES:
        cache.fleet_map_picture(fleet, theme)
        cache.node_map_picture(fleet, "accusations", "", theme)
    if (state := chosen.state) and (incident := chosen.incident):
        cache.document(state, incident)
        cache.story_told(state, incident)
        frame = frame_of(state, incident, cache.step_clock(state), "incident", None, None)
        for theme in THEMES:
            cache.timeline_picture(state, incident, frame, theme)
