"""Choose what reads this rank's device: NVML, AMD's library, the fake, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from lastgood.devices.fake_nvml import MODES, ONSET_SECONDS, FakeNvml
from lastgood.devices.nvml import NvmlSensors
from lastgood.devices.reading import Sensors
from lastgood.devices.rocm import AmdSensors
from lastgood.state import FAKE_PREFIX

Backend = Literal["cuda", "rocm", "none"]

FAKE: Final = "fake"
FAKES: Final = f"fake, or fake:MODE[@SECONDS] with MODE one of {', '.join(MODES)}"
"""What a setting may say about the fake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """What a rank knows about its device. ``open_sensors`` None: nothing reads it. An empty text is not known."""

    gpu_uuid: str = ""
    pci_bus_id: str = ""
    open_sensors: Callable[[], Sensors] | None = None

    @property
    def fake(self) -> bool:
        """Tell whether it is made up."""
        return self.gpu_uuid.startswith(FAKE_PREFIX)


def choose(
    setting: str, *, backend: Backend, gpu_uuid: str, pci_bus_id: str, node: str, slot: int, seed: int = 0
) -> Devices:
    """Return the device of a rank. ``setting``: ``auto``, ``off``, ``fake`` or ``fake:<mode>@<seconds>``.

    A rank on a real GPU never gets the fake. ``seed`` goes into the fake's numbers, not into its name.
    """
    if is_fake(setting) and backend == "none":
        mode, onset = fake_mode(setting)
        library = FakeNvml(node, slot, seed=seed, mode=mode, onset_seconds=onset)
        return Devices(gpu_uuid=library.uuid, open_sensors=partial(NvmlSensors, library.uuid, library=library))
    open_sensors: Callable[[], Sensors] | None = None
    if setting == "auto" and backend == "cuda":
        open_sensors = partial(NvmlSensors, gpu_uuid, pci_bus_id)
    elif setting == "auto" and backend == "rocm":
        open_sensors = partial(AmdSensors, pci_bus_id, gpu_uuid)
    return Devices(gpu_uuid=gpu_uuid, pci_bus_id=pci_bus_id, open_sensors=open_sensors)


def visible_mig(visible: str, index: int) -> str:
    """Return the UUID of the MIG instance that ``CUDA_VISIBLE_DEVICES`` puts at ``index``, or an empty text."""
    entries = [entry.strip() for entry in visible.split(",")]
    return entries[index] if index < len(entries) and entries[index].startswith("MIG-") else ""


def is_fake(setting: str) -> bool:
    """Tell whether a setting asks for the fake."""
    return setting.partition(":")[0] == FAKE


def fake_mode(setting: str) -> tuple[str, float]:
    """Return the fake's mode (``steady`` when none is given) and its onset. Raises ``ValueError`` for no number."""
    mode, _, seconds = setting.partition(":")[2].partition("@")
    return mode or "steady", float(seconds or ONSET_SECONDS)


def allowed(setting: str) -> bool:
    """Tell whether a setting can be used."""
    if not is_fake(setting):
        return setting in ("auto", "off")
    try:
        mode, onset = fake_mode(setting)
    except ValueError:
        return False
    return mode in MODES and 0 <= onset < 1e9
