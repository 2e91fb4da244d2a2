"""Report what this Python's torch and its GPU's driver can do, as one line of JSON, for ``lastgood doctor``.

``python -m lastgood.environment_report torch`` or ``sensors``. A process of its own: whoever asks needs no torch, and a
driver that hangs keeps only this process.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastgood.devices import Sensors


def torch_report() -> dict[str, Any]:
    """Return torch's version, its GPUs and the backends that it can communicate over."""
    import torch
    import torch.distributed as dist

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    has = {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available, "mpi": dist.is_mpi_available}
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "gpus": [{"name": torch.cuda.get_device_name(index)} for index in range(count)],
        "backends": [name for name, there in has.items() if there()] if dist.is_available() else [],
    }


def sensors_report() -> dict[str, Any]:
    """Return what the sensors of the first visible GPU say, or why they do not."""
    import torch

    from lastgood.devices import SensorError
    from lastgood.places import here

    _, found = here(0, "here", torch.device("cuda", 0))
    if found.open_sensors is None:
        return {"reading": {}, "kind": "no GPU", "problem": "no GPU here"}
    try:
        return looked_at(found.open_sensors())
    except SensorError as error:
        return {"reading": {}, "kind": error.kind, "problem": str(error)}


def looked_at(sensors: Sensors) -> dict[str, Any]:
    """Return what open sensors say in one look, and close them. Raises :class:`lastgood.devices.SensorError`."""
    reading = asdict(sensors.read())
    sensors.close()
    problems = reading.pop("problems")
    del reading["ecc_new"]  # takes more than one look, and is no sensor
    return {"reading": reading, "kind": "", "problem": "; ".join(problems)}


def main(arguments: list[str]) -> None:
    """Print one report."""
    report = {"torch": torch_report, "sensors": sensors_report}[arguments[0]]()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # a driver's threads must not keep the answer from being read
