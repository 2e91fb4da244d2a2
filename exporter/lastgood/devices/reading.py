"""Say what one look at a device's sensors gives, and what counts as an answer.

A sensor that a device does not have, or that answers with a value no device can have, is ``None``: the series is
absent then, never 0. Public exporters have shown temperatures of 345 degrees and blank values as 2^63: such answers
are dropped here, at the border.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

MOST_WATTS: Final = 20_000.0
COLDEST_CELSIUS: Final = -50.0
HOTTEST_CELSIUS: Final = 200.0
MOST_COUNT: Final = 2.0**62
"""A counter beyond it is a blank value of the driver."""
MOST_ERRORS: Final = 1e9
"""More memory errors are none: blank values of 32 bits are beyond it, and no process lives through so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at a device. ``problems``: sensors that failed though the device has them, as ``kind: text``."""

    power_watts: float | None = None
    energy_joules: float | None = None
    """Counted by the driver since it was loaded."""
    core_celsius: float | None = None
    memory_celsius: float | None = None
    margin_celsius: float | None = None
    """Degrees left before the device slows itself down; None when unknown, or when the driver says 0 or less."""
    ecc_uncorrected: float | None = None
    """Uncorrectable memory errors since the driver was loaded."""
    ecc_new: float | None = None
    """Those of them since :class:`lastgood.devices.watch.DeviceWatch` began to look; sensors alone do not know."""
    pci_bus_id: str = ""
    """Where the device is on the bus, as its driver says; empty when it does not."""
    problems: tuple[str, ...] = ()


class SensorError(Exception):
    """No sensor of the device can be read now. ``kind`` is a short word that names the way it failed."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Sensors(Protocol):
    """The open sensors of one device. Both methods run on the watching thread, and may raise or hang."""

    def read(self) -> Reading:
        """Look at every sensor. Raises :class:`SensorError` when the device as a whole does not answer."""

    def close(self) -> None:
        """Let the library go."""


def watts(value: float | None) -> float | None:
    """Return a power that a device can draw, else None."""
    return _within(value, 0.0, MOST_WATTS, above=True)


def celsius(value: float | None) -> float | None:
    """Return a temperature that a device can have, else None. 0 is the usual blank value."""
    found = _within(value, COLDEST_CELSIUS, HOTTEST_CELSIUS)
    return None if found == 0 else found


def margin(value: float | None) -> float | None:
    """Return a margin above 0, else None: devices without the answer say 0 or less."""
    return _within(value, 0.0, HOTTEST_CELSIUS, above=True)


def count(value: float | None) -> float | None:
    """Return a counter, else None."""
    return _within(value, 0.0, MOST_COUNT)


def errors(value: float | None) -> float | None:
    """Return a count of memory errors, else None."""
    return _within(value, 0.0, MOST_ERRORS)


def _within(value: float | None, low: float, high: float, *, above: bool = False) -> float | None:
    if value is None or not math.isfinite(value) or value > high or value < low or (above and value == low):
        return None
    return float(value)
