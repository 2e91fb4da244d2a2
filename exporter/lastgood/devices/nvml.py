"""Read an NVIDIA GPU through NVML, by the library ``pynvml`` (``pip install "lastgood[nvidia]"``).

The device is found by its UUID, which is the same in torch, in NVML and in dcgm-exporter whatever
``CUDA_VISIBLE_DEVICES`` says; an index is not. A MIG instance has a UUID of its own but no sensors: temperatures,
margin and memory errors are its GPU's, and power and energy are left out, since the instances share them and a sum
over ranks would count them several times.

The margin to the slowdown threshold comes from the driver where it has the answer, else it is the threshold minus
the core temperature. Not run on a GPU so far.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from lastgood.devices.reading import Reading, SensorError, celsius, count, errors, margin, watts

Answer = TypeVar("Answer", float, str)

_ABSENT: Final = ("NotSupported", "FunctionNotFound", "NoData", "InvalidArgument", "ArgumentVersionMismatch")
"""Ways in which NVML says that a device has no such sensor: no failure, no series."""
_GONE: Final = ("Uninitialized", "GpuIsLost", "ResetRequired", "DriverNotLoaded", "LibRmVersionMismatch", "NotFound",
                "GpuNotFound", "InUse", "NotReady")  # fmt: skip
"""Ways in which it says that nothing of the device can be read: open it again later."""


class NvmlSensors:
    """The sensors of the GPU (or MIG instance) ``uuid``. ``library``: ``pynvml``, or what has its functions."""

    def __init__(self, uuid: str, pci_bus_id: str = "", library: Any = None) -> None:
        self._nvml = _pynvml() if library is None else library
        self._call(self._nvml.nvmlInit)
        self._mig = uuid.startswith("MIG-")
        self._handle = self._found(uuid, pci_bus_id)
        self._place = self._ask([], "place", self._pci_bus_id) or pci_bus_id

    def _found(self, uuid: str, pci_bus_id: str) -> Any:
        """Return the handle of the device that has the sensors, by UUID, else by its place on the bus."""
        try:
            handle = self._call(self._nvml.nvmlDeviceGetHandleByUUID, uuid)
        except SensorError:
            if not pci_bus_id:
                raise
            return self._call(self._nvml.nvmlDeviceGetHandleByPciBusId, pci_bus_id)
        return self._call(self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) if self._mig else handle

    def read(self) -> Reading:
        """Look at every sensor. Raises :class:`SensorError` when the device is gone."""
        problems: list[str] = []
        ask = partial(self._ask, problems)
        power, energy = (None, None) if self._mig else (ask("power", self._power), ask("energy", self._energy))
        core = celsius(ask("core", self._core))
        return Reading(
            power_watts=watts(power),
            energy_joules=count(energy),
            core_celsius=core,
            memory_celsius=celsius(ask("memory", self._memory)),
            margin_celsius=margin(ask("margin", self._margin)) or margin(ask("margin", self._to_slowdown, core)),
            ecc_uncorrected=errors(ask("ecc", self._ecc)),
            pci_bus_id=self._place,
            problems=tuple(problems),
        )

    def close(self) -> None:
        """Give the library back."""
        self._nvml.nvmlShutdown()

    # --- one call each; the driver counts in milliwatts and millijoules ---------------------------------------------

    def _power(self) -> float:
        return float(self._nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1_000

    def _energy(self) -> float:
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1_000

    def _core(self) -> float:
        return float(self._nvml.nvmlDeviceGetTemperature(self._handle, self._nvml.NVML_TEMPERATURE_GPU))

    def _memory(self) -> float | None:
        """Memory has no call of its own, only a field. Its value is an unsigned 32-bit integer."""
        field = self._nvml.nvmlDeviceGetFieldValues(self._handle, [self._nvml.NVML_FI_DEV_MEMORY_TEMP])[0]
        return float(field.value.uiVal) if field.nvmlReturn == self._nvml.NVML_SUCCESS else None

    def _margin(self) -> float:
        return float(self._nvml.nvmlDeviceGetMarginTemperature(self._handle))

    def _to_slowdown(self, core: float | None) -> float | None:
        wanted = self._nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        threshold = celsius(float(self._nvml.nvmlDeviceGetTemperatureThreshold(self._handle, wanted)))
        return None if core is None or threshold is None else threshold - core

    def _ecc(self) -> float:
        kind, since = self._nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, self._nvml.NVML_VOLATILE_ECC
        return float(self._nvml.nvmlDeviceGetTotalEccErrors(self._handle, kind, since))

    # --- how a call can fail ----------------------------------------------------------------------------------------

    def _pci_bus_id(self) -> str:
        place = self._nvml.nvmlDeviceGetPciInfo(self._handle).busId
        return place.decode() if isinstance(place, bytes) else str(place)

    def _ask(self, problems: list[str], name: str, call: Callable[..., Answer | None], *args: Any) -> Answer | None:
        """Return a sensor's answer; None when the device has no such sensor, or when this one alone failed."""
        try:
            return call(*args)
        except Exception as error:
            word = self._word(error)
            if word in _GONE:
                raise SensorError(word, f"NVML: {error}") from error
            if word not in _ABSENT:
                problems.append(f"{name} {word}: {error}")
            return None

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as error:
            raise SensorError(self._word(error), f"NVML: {error}") from error

    def _word(self, error: Exception) -> str:
        """Return NVML's word for a failure (``GpuIsLost``), else the exception's name."""
        return type(error).__name__.removeprefix("NVMLError_")


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise SensorError(
            "no pynvml", "no sensors of the GPU without pynvml: pip install 'lastgood[nvidia]', or devices='off'"
        ) from error
    return pynvml
