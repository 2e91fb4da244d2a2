"""Find out where this rank runs: node, device, local rank, and what its arithmetic depends on.

The *environment key* names everything on which bitwise equal results depend. Healthy ranks with different keys
disagree, so a replay only compares ranks with the same one.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path

import torch

from lastgood.devices.choice import Backend, Devices, choose, visible_mig
from lastgood.state import Place

NAME_LENGTH = 256
_NODE_VARIABLES = ("SLURMD_NODENAME", "NODE_NAME")


def node_name(setting: str = "", environ: Mapping[str, str] | None = None) -> str:
    """Return the node's name: the setting, else the scheduler's name for it, else the host name."""
    environ = os.environ if environ is None else environ
    named = (environ.get(variable, "") for variable in _NODE_VARIABLES)
    name = setting or next((name for name in named if name), "") or socket.gethostname() or "unknown"
    return "".join(c if c.isprintable() else "?" for c in name)[:NAME_LENGTH]


def here(
    rank: int, node: str, device: torch.device, setting: str = "auto", environ: Mapping[str, str] | None = None
) -> tuple[Place, Devices]:
    """Return this rank's place, and its device by the setting ``devices``. Without a GPU it is ``cpu-<slot>``."""
    environ = os.environ if environ is None else environ
    local = environ.get("LOCAL_RANK") or environ.get("SLURM_LOCALID") or "0"
    slot = int(local) if local.isdecimal() else 0
    found = choose(setting, backend=backend(device), gpu_uuid=gpu_uuid(device, environ), pci_bus_id=pci_bus_id(device),
                   node=node, slot=slot, seed=torch.initial_seed())  # fmt: skip
    return Place(rank=rank, node=node, gpu_uuid=found.gpu_uuid or f"cpu-{slot}", slot=slot), found


def backend(device: torch.device) -> Backend:
    """Return whose GPU it is."""
    return "none" if device.type != "cuda" else "rocm" if torch.version.hip else "cuda"


def gpu_uuid(device: torch.device, environ: Mapping[str, str]) -> str:
    """Return the GPU's UUID as NVML prints it, or an empty text without a GPU. Not run on a GPU so far.

    torch's properties may name the GPU of a MIG instance; then the instance is what CUDA_VISIBLE_DEVICES says.
    """
    if device.type != "cuda":
        return ""
    index = torch.cuda.current_device() if device.index is None else device.index
    instance = visible_mig(environ.get("CUDA_VISIBLE_DEVICES", ""), index)
    return instance or f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def pci_bus_id(device: torch.device) -> str:
    """Return where the GPU is on the bus as NVML prints it; an empty text without one, or where torch cannot say."""
    if device.type != "cuda":
        return ""
    known = torch.cuda.get_device_properties(device)
    domain, bus, place = (getattr(known, f"pci_{name}_id", None) for name in ("domain", "bus", "device"))
    return "" if domain is None or bus is None or place is None else f"{domain:08X}:{bus:02X}:{place:02X}.0"


def environment_key(device: torch.device) -> str:
    """Return what bitwise equality depends on, as one readable line."""
    parts = [hardware(device), f"torch {torch.__version__}", f"matmul {torch.get_float32_matmul_precision()}"]
    if device.type == "cuda":
        parts += [
            f"cuda {torch.version.cuda}",
            f"cudnn {torch.backends.cudnn.version()}",  # type: ignore[no-untyped-call]
            f"cudnn deterministic {torch.backends.cudnn.deterministic}",
            f"cudnn benchmark {torch.backends.cudnn.benchmark}",
            f"driver {driver_version()}",
        ]
    else:
        parts += [f"threads {torch.get_num_threads()}", f"mkldnn {torch.backends.mkldnn.enabled}"]
        parts += [f"denormals {_keeps_denormals()}"]
    parts += [f"deterministic {torch.are_deterministic_algorithms_enabled()}"]
    return ", ".join(parts)


def _keeps_denormals() -> bool:
    """Tell whether this thread's arithmetic keeps values below the normal range (torch.set_flush_denormal)."""
    return bool(torch.tensor(1e-39) * 0.5 != 0)


def hardware(device: torch.device) -> str:
    """Return the GPU model, or the processor's architecture and vector capability."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def driver_version() -> str:
    """Return the NVIDIA driver's version, or "unknown"."""
    try:
        text = Path("/sys/module/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    return text.strip() or "unknown"
