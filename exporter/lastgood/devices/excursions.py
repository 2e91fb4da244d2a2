"""Notice when a device leaves its range, and say so in few lines. Pure: no clock, no files, no driver.

Three things are noticed, each against the device's own measure and never against a number that fits one model only:

- ``thermal_margin``: few degrees are left before the device slows itself down;
- ``power_deviates``: the power is far off the device's own recent median, for longer than a save usually takes. The
  median learns nothing from the excursion itself, or it would end at the wrong power. After half an hour the new
  power is taken as the usual one, and the line says so;
- ``uncorrected_ecc``: the count of uncorrectable memory errors grew.

An excursion is context for people, never evidence: no verdict reads it. It begins after several readings in a row
and ends well inside the range, so a value that sits on the limit is one excursion. After one of a kind has been told,
the next of that kind waits ten minutes; what fell into that time is counted in the next line. A sensor without an
answer begins nothing and ends nothing. Not covered: a slow drift of the median itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Final, Literal

from lastgood.devices.reading import Reading
from lastgood.events import utc
from lastgood.state import Place
from lastgood.wording import rank_text

Kind = Literal["thermal_margin", "power_deviates", "uncorrected_ecc"]

SENSORS: Final[Mapping[Kind, tuple[str, str]]] = {
    "thermal_margin": ("margin", "celsius"),
    "power_deviates": ("power", "watts"),
    "uncorrected_ecc": ("ecc", "errors"),
}
"""Kind -> sensor and unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When an excursion begins and ends."""

    margin_celsius: float = 5.0
    """It begins at this margin or below. Raise it where throttling costs more than an early line."""
    margin_clear_celsius: float = 8.0
    power_share: float = 0.3
    """Share of the median by which the power must be off. Idle waits and evaluations reach it: lower it with care."""
    power_clear_share: float = 0.15
    power_readings: int = 120
    """Readings that the median is taken of (ten minutes at the default interval)."""
    power_least_readings: int = 12
    power_accept_seconds: float = 1_800.0
    """An excursion of the power that lasts this long is a new level: it ends, and its readings make the median."""
    begin_readings: int = 3
    end_readings: int = 3
    quiet_seconds: float = 600.0
    """After a told excursion the next of its kind waits this long."""


@dataclass(slots=True)
class _Run:
    """One kind of excursion: how many readings in a row say begin or end, and what is on now."""

    streak: int = 0
    began: float = 0.0
    worst: float = 0.0
    number: int = 0
    open: bool = False
    told: bool = False
    """Whether the excursion that is on was told; one in the quiet time is not."""
    quiet_until: float = float("-inf")
    kept_back: int = 0


@dataclass(slots=True)
class ExcursionRules:
    """Turn one device's readings into the data of ``device.excursion`` events."""

    place: Place
    limits: Limits = field(default_factory=Limits)
    _powers: deque[float] = field(init=False)
    _held: deque[float] = field(init=False)
    """Readings of the power that may belong to an excursion; the median does not know them."""
    _errors: float = field(init=False, default=0.0)
    _new_errors: float = field(init=False, default=0.0)
    _runs: dict[Kind, _Run] = field(init=False, default_factory=lambda: {kind: _Run() for kind in SENSORS})

    def __post_init__(self) -> None:
        self._powers, self._held = (deque(maxlen=self.limits.power_readings) for _ in range(2))

    def take(self, reading: Reading, at: float) -> tuple[dict[str, Any], ...]:
        """Return what there is to journal after this reading. ``at``: Unix seconds, never earlier than before."""
        return (*self._margin(reading.margin_celsius, at), *self._power(reading.power_watts, at),
                *self._ecc(reading.ecc_new, at))  # fmt: skip

    def _margin(self, value: float | None, at: float) -> Iterator[dict[str, Any]]:
        limits = self.limits
        if value is not None:
            out, back = value <= limits.margin_celsius, value >= limits.margin_clear_celsius
            yield from self._judge("thermal_margin", value, limits.margin_celsius, out, back, at, worse=min)

    def _power(self, value: float | None, at: float) -> Iterator[dict[str, Any]]:
        if value is None:
            return
        usual = median(self._powers) if len(self._powers) >= self.limits.power_least_readings else None
        if not usual:
            self._powers.append(value)
            return
        off = abs(value - usual) / usual
        out, back = off >= self.limits.power_share, off <= self.limits.power_clear_share
        farther = partial(max, key=lambda watts: abs(watts - usual))
        was_open, limit = self._runs["power_deviates"].open, round(usual, 1)
        yield from self._judge("power_deviates", value, limit, out, back, at, worse=farther)
        yield from self._learn(value, limit, was_open, at)

    def _learn(self, value: float, limit: float, was_open: bool, at: float) -> Iterator[dict[str, Any]]:
        """Let the median know a reading, unless it is of an excursion; end one that has become the new level."""
        run = self._runs["power_deviates"]
        self._held.append(value)
        if run.open and at - run.began >= self.limits.power_accept_seconds:
            self._powers, self._held = self._held, deque(maxlen=self.limits.power_readings)
            accepted = f"; {median(self._powers):.0f} W are taken as its usual power from now on"
            yield from self._end("power_deviates", run, limit, at, accepted)
        elif not run.open and not run.streak:
            if not was_open:  # a beginning that came to nothing is noise, and noise is usual
                self._powers.extend(self._held)
            self._held.clear()

    def _judge(
        self, kind: Kind, value: float, limit: float, out: bool, back: bool, at: float, *,
        worse: Callable[[float, float], float],
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Count readings in a row, and tell a beginning and an end."""
        run = self._runs[kind]
        wanted = back if run.open else out
        if wanted and not run.streak and not run.open:
            run.began, run.worst = at, value
        run.streak = run.streak + 1 if wanted else 0
        run.worst = worse(run.worst, value)
        if run.open and run.streak >= self.limits.end_readings:
            yield from self._end(kind, run, limit, at)
        elif not run.open and run.streak >= self.limits.begin_readings:
            run.open, run.told, run.streak = True, False, 0
        if run.open and not run.told and at >= run.quiet_until:
            yield self._tell_beginning(kind, run, limit, at)

    def _tell_beginning(self, kind: Kind, run: _Run, limit: float, at: float) -> dict[str, Any]:
        run.told, run.quiet_until = True, at + self.limits.quiet_seconds
        run.number += 1
        return self._event(kind, run, "started", run.worst, limit)

    def _end(self, kind: Kind, run: _Run, limit: float, at: float, more: str = "") -> Iterator[dict[str, Any]]:
        run.open, run.streak = False, 0
        if run.told:
            run.quiet_until = at + self.limits.quiet_seconds
            event = self._event(kind, run, "ended", run.worst, limit, ended=at)
            yield event | {"text": event["text"] + more}
        else:
            run.kept_back += 1

    def _ecc(self, value: float | None, at: float) -> Iterator[dict[str, Any]]:
        """Errors have no end: new ones are told at once, or together after the quiet time. ``value`` never falls."""
        if value is None:
            return
        grown, self._errors = value - self._errors, value
        run = self._runs["uncorrected_ecc"]
        if grown and not self._new_errors:
            run.began = at
        self._new_errors += grown
        if self._new_errors and at >= run.quiet_until:
            run.number += 1
            run.quiet_until = at + self.limits.quiet_seconds
            yield self._event("uncorrected_ecc", run, "ended", self._new_errors, 0.0, ended=at)
            self._new_errors = 0.0

    def _event(
        self, kind: Kind, run: _Run, state: str, value: float, limit: float, ended: float | None = None
    ) -> dict[str, Any]:
        sensor, unit = SENSORS[kind]
        place, kept_back, run.kept_back = self.place, run.kept_back, 0
        return {
            "excursion": f"{kind}-{place.rank}-{run.number}", "state": state, "nature": kind, "sensor": sensor,
            "value": round(value, 2), "limit": limit, "unit": unit,
            "started": utc(run.began), "ended": None if ended is None else utc(ended),
            "rank": place.rank, "node": place.node, "gpu_uuid": place.gpu_uuid, "slot": place.slot,
            "kept_back": kept_back,
            "text": f"{rank_text(place)}: {told(kind, value, limit)}",
        }  # fmt: skip


def told(kind: str, value: float, limit: float) -> str:
    """Say an excursion in words, with its value and the measure it is held to."""
    if kind == "thermal_margin":
        return f"{value:.0f} °C left before it slows itself down (limit {limit:.0f} °C)"
    if kind == "power_deviates":
        return f"power {value:.0f} W, its own recent median {limit:.0f} W"
    return f"{value:.0f} new uncorrectable memory {'error' if value == 1 else 'errors'}"
