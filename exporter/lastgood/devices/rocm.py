"""Read an AMD GPU through AMD's library ``amdsmi``, which comes with ROCm (not from the package index).

Written against its documented interface and never run on hardware. The device is found by its place on the bus where
torch tells it, else by the UUID that HIP gives it; an index is never guessed. What the library cannot say it answers
with the text "N/A" or an exception; both mean that the device has no such sensor.

Units differ between releases: energy is a count times a resolution in microjoules, its field was called ``power``
before release 6.2; temperatures are documented in thousandths of a degree, while torch and ``amd-smi`` read whole
degrees. No chip is warmer than 1,000 degrees, so a larger answer is taken as thousandths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lastgood.devices.reading import Reading, SensorError, celsius, count, errors, margin, watts

_THOUSANDTHS_FROM: Final = 1_000.0
_NOT_SUPPORTED: Final = ("NOT_SUPPORTED", "NOT_YET_IMPLEMENTED", "NO_HSMP_MSG_SUP", "INVAL", "NO_DATA")
"""Words in the library's messages which say that a device has no such sensor."""


class AmdSensors:
    """The sensors of the GPU at ``pci_bus_id``. ``library``: ``amdsmi``, or what has its functions."""

    def __init__(self, pci_bus_id: str, uuid: str = "", library: Any = None) -> None:
        self._smi = _amdsmi() if library is None else library
        self._call(self._smi.amdsmi_init)
        self._handle, self._place = self._found(pci_bus_id, uuid)

    def _found(self, pci_bus_id: str, uuid: str) -> tuple[Any, str]:
        """Return the device's handle and place: by place, else by UUID, else the only one there is."""
        handles = list(self._call(self._smi.amdsmi_get_processor_handles))
        places = [str(self._call(self._smi.amdsmi_get_gpu_device_bdf, handle)) for handle in handles]
        for handle, place in zip(handles, places, strict=True):
            if _same_place(place, pci_bus_id) or (not pci_bus_id and self._has_uuid(handle, uuid)):
                return handle, place
        if len(handles) == 1 and not pci_bus_id:
            return handles[0], places[0]
        raise SensorError("no such GPU", f"amdsmi knows no GPU at {pci_bus_id or 'an unknown place'}")

    def _has_uuid(self, handle: Any, uuid: str) -> bool:
        """Compare with the UUID that HIP, and so torch, gives the device (named since ROCm 6.4)."""
        try:
            known = str(self._smi.amdsmi_get_gpu_enumeration_info(handle).get("hip_uuid", ""))
        except Exception:
            return False
        return bool(uuid) and _digits(known) == _digits(uuid)

    def read(self) -> Reading:
        """Look at every sensor. Raises :class:`SensorError` when not one of them answers."""
        problems: list[str] = []
        sensors, metrics = self._smi.AmdSmiTemperatureType, self._smi.AmdSmiTemperatureMetric
        core = self._ask(problems, "core", self._temperature, sensors.JUNCTION, metrics.CURRENT)
        limit = self._ask(problems, "margin", self._temperature, sensors.JUNCTION, metrics.CRITICAL)
        reading = Reading(
            power_watts=watts(self._ask(problems, "power", self._power)),
            energy_joules=count(self._ask(problems, "energy", self._energy)),
            core_celsius=celsius(core),
            memory_celsius=celsius(self._ask(problems, "memory", self._temperature, sensors.VRAM, metrics.CURRENT)),
            margin_celsius=None if core is None or limit is None else margin(limit - core),
            ecc_uncorrected=errors(self._ask(problems, "ecc", self._ecc)),
            pci_bus_id=self._place,
            problems=tuple(problems),
        )
        if problems and reading == Reading(pci_bus_id=self._place, problems=reading.problems):
            raise SensorError("no answer", f"amdsmi: {problems[0]}")
        return reading

    def close(self) -> None:
        """Give the library back."""
        self._smi.amdsmi_shut_down()

    def _power(self) -> float | None:
        """Return watts. ``socket_power`` (newer releases) is whichever of the other two the card has."""
        found = self._smi.amdsmi_get_power_info(self._handle)
        names = ("socket_power", "current_socket_power", "average_socket_power")
        return next((value for name in names if (value := _number(found.get(name))) is not None), None)

    def _energy(self) -> float | None:
        found = self._smi.amdsmi_get_energy_count(self._handle)
        counted = _number(found.get("energy_accumulator", found.get("power")))
        resolution = _number(found.get("counter_resolution"))
        return None if counted is None or resolution is None else counted * resolution / 1e6

    def _temperature(self, sensor: Any, metric: Any) -> float | None:
        value = _number(self._smi.amdsmi_get_temp_metric(self._handle, sensor, metric))
        return None if value is None else value / 1_000 if value >= _THOUSANDTHS_FROM else value

    def _ecc(self) -> float | None:
        return _number(self._smi.amdsmi_get_gpu_total_ecc_count(self._handle).get("uncorrectable_count"))

    def _ask(self, problems: list[str], name: str, call: Callable[..., float | None], *args: Any) -> float | None:
        try:
            return call(*args)
        except Exception as error:
            if not any(word in str(error) for word in _NOT_SUPPORTED):
                problems.append(f"{name} {type(error).__name__}: {error}")
            return None

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as error:
            raise SensorError(type(error).__name__, f"amdsmi: {error}") from error


def _number(value: Any) -> float | None:
    """Return an answer as a number; "N/A" is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _digits(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").replace("-", "")


def _same_place(one: str, other: str) -> bool:
    """Compare ``domain:bus:device.function`` however many digits the domain is written with."""
    return bool(other) and one.lower().lstrip("0") == other.lower().lstrip("0")


def _amdsmi() -> Any:
    try:
        import amdsmi  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise SensorError(
            "no amdsmi", "no sensors of the GPU without amdsmi, which comes with ROCm: install it, or devices='off'"
        ) from error
    return amdsmi
