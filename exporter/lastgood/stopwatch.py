"""Measure how long a check takes where it runs: by the host's clock, or by events that a GPU passes.

On a GPU the host only asks for the work, so its clock says nothing. Two events stand around the work on its stream, and
the time between them is known once the device has passed both: nobody waits for that. Where the host makes the device
wait (it talks to other ranks in between), the device's pause counts too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch


class Span(Protocol):
    """A stretch of time."""

    def seconds(self) -> float | None:
        """Return how long it was; None while nobody knows. Never waits."""


class Stopwatch(Protocol):
    """A way to measure."""

    def begin(self) -> Callable[[], Span]:
        """Begin to measure; what it returns is called at the end."""


class Known:
    """A stretch that is over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def seconds(self) -> float:
        """Return how long it was."""
        return self._seconds


class HostClock:
    """The host's clock. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock

    def begin(self) -> Callable[[], Known]:
        """Begin to measure."""
        began = self._clock()
        return lambda: Known(self._clock() - began)


class DeviceEvents:
    """Events on the current stream of a GPU. ``cuda``: ``torch.cuda``, or what stands for it in a test."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device, self._cuda = device, cuda

    def begin(self) -> Callable[[], _Passed]:
        """Let the device note when it comes here."""
        began = self._mark()
        return lambda: _Passed(began, self._mark())

    def _mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event


class _Passed:
    """Two events of one stream."""

    def __init__(self, began: Any, ended: Any) -> None:
        self._began, self._ended = began, ended

    def seconds(self) -> float | None:
        """Return the time between them, once the device has passed both."""
        if not self._ended.query():
            return None
        milliseconds: float = self._began.elapsed_time(self._ended)
        return milliseconds / 1000


def stopwatch_of(device: torch.device) -> Stopwatch:
    """Return how checks on a device are measured."""
    return DeviceEvents(device) if device.type == "cuda" else HostClock()
