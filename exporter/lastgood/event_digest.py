"""Digest a run's events: SHA-256 over their lines in canonical order, so the same history has the same digest.

A long run has tens of thousands of events, and a few new ones at a time. To write all of them out again takes half of
what a state costs, so a run keeps where it was: while the events it begins with are the same objects, it goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any, Final

from lastgood.events import Event

DigestOf = Callable[[Sequence[Event]], str]
STRIDE: Final = 1024
"""So many events apart are the places to go on from."""


def digest_of(events: Sequence[Event]) -> str:
    """Return the digest of events in canonical order."""
    return RunningDigest().of(events)


class RunningDigest:
    """Digest one run's events again and again. An event may come between others later: it goes on from before it.

    Not to be shared between threads.
    """

    def __init__(self) -> None:
        self._events: Sequence[Event] = ()
        self._places = [hashlib.sha256()]  # place n: after n strides

    def of(self, events: Sequence[Event]) -> str:
        """Return the digest of events in canonical order."""
        same = next(compress(count(), map(is_not, self._events, events)), min(len(self._events), len(events)))
        del self._places[same // STRIDE + 1 :]
        for start in range(STRIDE * (len(self._places) - 1), len(events) - STRIDE + 1, STRIDE):
            self._places.append(self._places[-1].copy())
            _add(self._places[-1], events[start : start + STRIDE])
        last = self._places[-1].copy()
        _add(last, events[STRIDE * (len(self._places) - 1) :])
        self._events = events
        return last.hexdigest()


def _add(digest: Any, events: Iterable[Event]) -> None:
    for event in events:
        digest.update(event.to_line().encode(errors="backslashreplace") + b"\n")
