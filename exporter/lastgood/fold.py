"""Fold the events of a run into its state. Pure: no torch, no files, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lastgood.events import Event
from lastgood.state import Place, RunState, Unreadable


def derive(
    run: str,
    events: Iterable[Event],
    *,
    topologies: Mapping[int, tuple[Place, ...]] | None = None,
    unreadable: Iterable[Unreadable] = (),
    present: Mapping[str, str] | None = None,
) -> RunState:
    """Return the state of ``run`` after ``events``, in whatever order and however often they are given.

    ``topologies``: attempt -> places. ``present``: checkpoint path -> "ok", "missing" or "unreadable" as found on
    disk (None: not looked at, taken as present).
    """
    raise NotImplementedError
