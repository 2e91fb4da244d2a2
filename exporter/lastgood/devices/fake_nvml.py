"""A FAKE of ``pynvml``, written by hand: it reads no device and makes its numbers up.

The demo uses it by name (``lastgood demo --fake-gpu``), since it runs where there is no GPU, and the tests use it to
see what a broken driver does to training. Its devices are called ``FAKE-GPU-...`` and shown as "fake GPU".

Only the functions that :mod:`lastgood.devices.nvml` calls exist, with the names, units and errors of the real
library. The numbers are those of a warm data-centre GPU under a steady load; they are a function of seed, node, slot
and the seconds since the start. From ``onset_seconds`` on the device misbehaves as its ``mode`` says.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Final

from lastgood.state import FAKE_PREFIX

MODES: Final = {
    "steady": "a device in order",
    "hot": "its temperature climbs to 3 degrees below the slowdown threshold",
    "power": "it draws 40 % less than before",
    "ecc": "it counts an uncorrectable memory error",
    "hang": "its driver stops answering",
    "lost": "it falls off the bus: every call raises",
    "flaky": "every other look at it raises",
    "bare": "it has no sensor but its core temperature",
}
"""Mode -> what the device does from the onset on."""

ONSET_SECONDS: Final = 8.0
SLOWDOWN_CELSIUS: Final = 87
_SWING_WATTS, _SWING_SECONDS = 14.0, 60.0


class NVMLError(Exception):
    """The parent of the errors, as in the real library."""


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801
    """The GPU has fallen off the bus."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    """The device has no such sensor."""


class NVMLError_NotFound(NVMLError):  # noqa: N801
    """No device has this UUID."""


class NVMLError_Uninitialized(NVMLError):  # noqa: N801
    """Nobody has called ``nvmlInit``."""


class FakeNvml:
    """A library with one fake device. ``clock``: monotonic seconds. Raises ``ValueError`` for an unknown mode."""

    NVML_SUCCESS = 0
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
    NVML_FI_DEV_MEMORY_TEMP = 82
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

    def __init__(
        self,
        node: str,
        slot: int,
        *,
        seed: int = 0,
        mode: str = "steady",
        onset_seconds: float = ONSET_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"fake GPU mode {mode!r}: expected one of {', '.join(MODES)}")
        self.uuid, self.mode, self.onset_seconds = fake_uuid(node, slot), mode, onset_seconds
        self._clock, self._start = clock, clock()
        self._slot, self._word = slot, f"{seed}/{node}/{slot}"
        self._inits = self._looks = 0

    # --- what the real library does ---------------------------------------------------------------------------------

    def nvmlInit(self) -> None:
        """Count a user of the library."""
        self._inits += 1

    def nvmlShutdown(self) -> None:
        """Count one less."""
        self._inits -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        """Return the handle of the one device."""
        self._answer(extra=False)
        if uuid != self.uuid:
            raise NVMLError_NotFound(f"fake NVML has no device {uuid}")
        return uuid

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:
        """Return a made-up place on the bus."""
        return SimpleNamespace(busId=f"00000000:{0x10 + self._slot:02X}:00.0".encode())

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        """Return milliwatts."""
        self._answer(first=True)
        return round(1_000 * self._watts(self._seconds()))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        """Return millijoules since the driver was loaded, which is before the start."""
        self._answer()
        return round(1_000 * self._joules(self._seconds()))

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        """Return whole degrees Celsius of the core."""
        self._answer(extra=False)
        return round(self._core(self._seconds()))

    def nvmlDeviceGetTemperatureThreshold(self, handle: str, threshold: int) -> int:
        """Return the temperature in degrees Celsius at which it slows itself down."""
        self._answer()
        return SLOWDOWN_CELSIUS

    def nvmlDeviceGetMarginTemperature(self, handle: str) -> int:
        """Return the degrees left to that."""
        self._answer()
        return SLOWDOWN_CELSIUS - round(self._core(self._seconds()))

    def nvmlDeviceGetFieldValues(self, handle: str, fields: Sequence[int]) -> list[SimpleNamespace]:
        """Return the memory's temperature for every field asked for."""
        self._answer()
        value = SimpleNamespace(uiVal=round(self._core(self._seconds()) + 11 + 2 * self._share("memory")))
        return [SimpleNamespace(fieldId=field, nvmlReturn=self.NVML_SUCCESS, value=value) for field in fields]

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, since: int) -> int:
        """Return the uncorrectable errors since the driver was loaded."""
        self._answer()
        return 1 if self.mode == "ecc" and self._misbehaves() else 0

    # --- what it makes up -------------------------------------------------------------------------------------------

    def _seconds(self) -> float:
        return self._clock() - self._start

    def _misbehaves(self) -> bool:
        return self._seconds() >= self.onset_seconds

    def _share(self, what: str) -> float:
        """Return a number in [0, 1) that belongs to this device and to ``what``."""
        digest = hashlib.sha256(f"{self._word}/{what}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48

    def _noise(self, what: str, seconds: float) -> float:
        """Return a number in [-1, 1) that changes every second."""
        return 2 * self._share(f"{what}/{int(seconds)}") - 1

    def _watts(self, seconds: float) -> float:
        swing = _SWING_WATTS * math.sin(2 * math.pi * (seconds / _SWING_SECONDS + self._share("phase")))
        steady = self._load() + swing + 6 * self._noise("power", seconds)
        return 0.6 * steady if self.mode == "power" and self._misbehaves() else steady

    def _load(self) -> float:
        return 620 + 40 * self._share("load")

    def _joules(self, seconds: float) -> float:
        """Return what that power sums up to, without the noise."""
        low = max(0.0, seconds - self.onset_seconds) if self.mode == "power" else 0.0
        before = 3.6e6 * (1 + 50 * self._share("energy"))
        return before + self._load() * (seconds - 0.4 * low)

    def _core(self, seconds: float) -> float:
        warm = 52 + 6 * self._share("heat") + 4 * (1 - math.exp(-seconds / 20)) + 0.6 * self._noise("core", seconds)
        if self.mode != "hot" or not self._misbehaves():
            return warm
        return min(SLOWDOWN_CELSIUS - 3.0, warm + 12 * (seconds - self.onset_seconds + 0.5))

    # --- how it fails -----------------------------------------------------------------------------------------------

    def _answer(self, *, first: bool = False, extra: bool = True) -> None:
        """Fail as the mode says, if it is time. ``first``: a look's first call; ``extra``: a bare device lacks it."""
        if self._inits <= 0:
            raise NVMLError_Uninitialized("fake NVML: nvmlInit was not called")
        self._looks += first
        if self.mode == "bare" and extra:
            raise NVMLError_NotSupported("fake NVML: no such sensor")
        if not self._misbehaves():
            return
        if self.mode == "hang":
            threading.Event().wait()
        if self.mode == "lost" or (self.mode == "flaky" and first and self._looks % 2):
            raise NVMLError_GpuIsLost("fake NVML: the GPU is lost")


def fake_uuid(node: str, slot: int) -> str:
    """Return the UUID of the fake device on that slot: the same in every attempt and every run."""
    digest = hashlib.sha256(f"fake/{node}/{slot}".encode()).hexdigest()
    return f"{FAKE_PREFIX}{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
