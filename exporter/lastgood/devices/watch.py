"""Watch one device from a daemon thread of its own, so that whatever the driver does, nobody waits for it.

The thread opens the sensors, reads them once per interval and publishes the answer by one assignment. Everyone else
only looks at what was published: :meth:`DeviceWatch.current` answers at once, also while a driver call hangs. An
answer is too old after three intervals, and never before ten seconds; then there is none. A failed look closes the
sensors and opens them again after a pause that doubles up to a minute: that covers a lost GPU, a driver that is
loaded anew, and a library that raises ``KeyboardInterrupt`` or ``SystemExit``, which mean nothing on this thread.

Forked children (data-loader workers) have no such thread and no answer. Not covered: a thread that hangs in the
kernel, uninterruptible, which no process can leave behind.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from lastgood.devices.growth import Growth
from lastgood.devices.reading import Reading, SensorError, Sensors

LONGEST_PAUSE_SECONDS: Final = 60.0
STALE_INTERVALS: Final = 3
LEAST_STALE_SECONDS: Final = 10.0
JOIN_SECONDS: Final = 0.2
"""How long ``close`` waits for the thread: a healthy one needs a few milliseconds."""


class NoDevices:
    """Watch nothing: what runs without a GPU, or with the setting ``devices="off"``."""

    def current(self) -> Reading | None:
        """Return nothing."""
        return None

    def close(self) -> None:
        """Do nothing."""


class DeviceWatch:
    """Read one device's sensors every ``interval_seconds``.

    ``open_sensors()`` is called on the thread, and again after a failure. ``on_reading(reading, at)`` gets every
    answer, ``at`` in Unix seconds; ``on_problem(kind, text)`` is called once per kind of failure. Both run on the
    thread (``on_problem`` also on one that asks for the current reading while the driver hangs).
    """

    def __init__(
        self,
        open_sensors: Callable[[], Sensors],
        *,
        interval_seconds: float = 5.0,
        stale_seconds: float | None = None,
        on_reading: Callable[[Reading, float], None] = lambda reading, at: None,
        on_problem: Callable[[str, str], None] = lambda kind, text: None,
    ) -> None:
        self.interval_seconds = interval_seconds
        usual = max(STALE_INTERVALS * interval_seconds, LEAST_STALE_SECONDS)
        self.stale_seconds = usual if stale_seconds is None else stale_seconds
        self._open, self._on_reading, self._on_problem = open_sensors, on_reading, on_problem
        self._published: tuple[float, Reading] | None = None  # when it was asked for, and the answer; set as one
        self._busy_since: float | None = None
        self._told: set[str] = set()
        self._memory_errors = Growth()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lastgood-devices", daemon=True)
        _forget_in_children(self)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            self._problem("thread", f"no thread for the device's sensors: {error}")

    def current(self) -> Reading | None:
        """Return the last answer; None when there is none, or when it is older than ``stale_seconds``."""
        now, published, busy = time.monotonic(), self._published, self._busy_since
        if busy is not None and now - busy > self.stale_seconds:
            self._problem("hanging", f"the driver has not answered for {now - busy:.0f} s")
        return published[1] if published is not None and now - published[0] <= self.stale_seconds else None

    def close(self) -> None:
        """Stop watching within a fraction of a second, also while the driver hangs. May be called twice."""
        self._stop.set()
        self._published = None
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(JOIN_SECONDS)

    def _work(self) -> None:
        sensors: Sensors | None = None
        pause = self.interval_seconds
        while not self._stop.is_set():
            try:
                sensors = self._look(sensors)
                pause = self.interval_seconds
            except BaseException as error:
                self._failed(error)
                _close(sensors)
                sensors = None
                pause = max(min(2 * pause, LONGEST_PAUSE_SECONDS), self.interval_seconds)
            self._stop.wait(pause)
        _close(sensors)

    def _look(self, sensors: Sensors | None) -> Sensors:
        """Read once and publish. The time of an answer is when it was asked for."""
        self._busy_since = asked = time.monotonic()
        try:
            opened = self._open() if sensors is None else sensors
            found = opened.read()
            reading = replace(found, ecc_new=self._memory_errors.take(found.ecc_uncorrected))
        finally:
            self._busy_since = None
        if not self._stop.is_set():
            self._published = (asked, reading)
            self._tell(reading)
        return opened

    def _tell(self, reading: Reading) -> None:
        for problem in reading.problems:
            self._problem(problem.partition(":")[0], problem)
        try:
            self._on_reading(reading, time.time())
        except BaseException as error:  # what others do with a reading must not close the sensors
            self._problem("excursion", f"a reading could not be used: {error!r}")

    def _failed(self, error: BaseException) -> None:
        kind = error.kind if isinstance(error, SensorError) else type(error).__name__
        self._problem(kind, str(error) or kind)

    def _problem(self, kind: str, text: str) -> None:
        if kind in self._told or self._stop.is_set():
            return
        self._told.add(kind)
        with suppress(BaseException):
            self._on_problem(kind, text)


def _close(sensors: Sensors | None) -> None:
    if sensors is not None:
        with suppress(BaseException):
            sensors.close()


def _forget_in_children(watch: DeviceWatch) -> None:
    """Leave a forked child without a reading: it has no thread that could renew it."""
    held = weakref.ref(watch)

    def forget() -> None:
        inherited = held()
        if inherited is not None:
            inherited._stop = threading.Event()  # the old one's lock may be held by a thread that is not here
            inherited._stop.set()
            inherited._published = inherited._busy_since = None

    os.register_at_fork(after_in_child=forget)
