"""Look at what is installed: Python, torch and its GPUs, a compiler, the extras, the servers' programs.

torch is asked in a process of its own (``python -m lastgood.environment_report``): the console never imports it, and
a driver that hangs then costs a time-out and not the doctor.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from lastgood_console.cli import EXTRA_MODULES, GRAFANA_MODULES, INSTALL_GRAFANA
from lastgood_console.doctor.item import Item, fail, ok, warn
from lastgood_console.stack.programs import PACKAGES, Which, look_for_programs

LEAST_PYTHON: Final = (3, 11)
LEAST_TORCH: Final = (2, 8)
TORCH_SECONDS: Final = 120.0
SENSORS_SECONDS: Final = 30.0

EXTRAS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "console": (tuple(sorted(EXTRA_MODULES)), "console, demo and stack"),
    "push": (("cramjam",), "pushing metrics by remote write"),
    "grafana": (tuple(sorted(GRAFANA_MODULES)), "lastgood grafana deploy"),
}
"""Extra -> its modules, and what needs it."""
COMPILERS: Final = ("c++", "g++", "clang++")


@dataclass(frozen=True, slots=True)
class Told:
    """What a report in a process of its own said: its data, or why there is none."""

    data: Mapping[str, Any] | None
    problem: str = ""


# --- probes ----------------------------------------------------------------------------------------------------------


def ask(what: str, seconds: float, python: str = sys.executable) -> Told:
    """Run one report and return its last line. ``what``: torch or sensors."""
    command = [python, "-m", "lastgood.environment_report", what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return Told(None, f"no answer within {seconds:.0f} s")
    except OSError as error:
        return Told(None, f"{python} cannot be run: {error.strerror}")
    try:
        return Told(json.loads(done.stdout.strip().rpartition("\n")[2]))
    except ValueError:
        return Told(None, (done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}")[:200])


def missing_modules() -> frozenset[str]:
    """Return the modules of the extras that are not installed."""
    return frozenset(name for names, _ in EXTRAS.values() for name in names if find_spec(name) is None)


def owners_of(module: str) -> frozenset[str]:
    """Return the installed distributions that bring a module."""
    return frozenset(importlib.metadata.packages_distributions().get(module, ()))


def look(environ: Mapping[str, str], which: Which = shutil.which) -> Iterator[Item]:
    """Look at everything and yield what there is to say."""
    yield python_item(sys.version_info[:3])
    torch = ask("torch", TORCH_SECONDS)
    yield from torch_items(torch)
    if torch.data and torch.data.get("gpus"):
        yield sensors_item(ask("sensors", SENSORS_SECONDS), environ.get("LASTGOOD_DEVICES", "auto"))
    wanted = [environ["CXX"]] if environ.get("CXX") else list(COMPILERS)
    yield compiler_item(wanted, next(filter(None, map(which, wanted)), None), bool(torch.data))
    yield from extra_items(missing_modules())
    yield from urllib3_items(owners_of("urllib3"))
    yield from program_items(look_for_programs(which))


# --- decisions -------------------------------------------------------------------------------------------------------


def python_item(version: Sequence[int]) -> Item:
    """Judge the interpreter."""
    shown = ".".join(map(str, version))
    if tuple(version[:2]) < LEAST_PYTHON:
        return fail("python", f"{shown}, too old", f"use Python {LEAST_PYTHON[0]}.{LEAST_PYTHON[1]} or newer")
    return ok("python", shown)


def torch_items(told: Told) -> Iterator[Item]:
    """Judge torch, and say which GPUs and backends it has. Reading runs needs none of it."""
    if told.data is None:
        out = "runs can be read without it; to train or to run the demo: pip install 'lastgood[torch]'"
        yield warn("torch", f"cannot be used: {told.problem}", out)
        return
    version = str(told.data["torch"])
    if _release(version) < LEAST_TORCH:
        least = ".".join(map(str, LEAST_TORCH))
        yield fail("torch", f"{version}, too old", f"install torch {least} or newer where training runs")
    else:
        yield ok("torch", f"{version}, backends {', '.join(told.data['backends']) or 'none'}")
    gpus = told.data["gpus"]
    if not gpus:
        yield ok("gpu", "none here: the checks run on the CPU, and there are no device series")
        return
    names = sorted({str(gpu["name"]) for gpu in gpus})
    yield ok("gpu", f"{len(gpus)}: {', '.join(names)}")
    if "nccl" not in told.data["backends"]:
        yield warn("gpu", "torch has GPUs but no NCCL", "several GPUs need a torch built with it")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".")[:2] if part.isdecimal())


def sensors_item(told: Told, setting: str) -> Item:
    """Judge the GPU's sensors."""
    if setting == "off":
        return ok("sensors", "switched off (LASTGOOD_DEVICES=off)")
    out = "pip install 'lastgood[nvidia]' (AMD: amdsmi, which comes with ROCm), or LASTGOOD_DEVICES=off"
    if told.data is None:
        hanging = "answer" in told.problem
        return warn("sensors", told.problem, "the driver hangs: look at the kernel log" if hanging else out)
    if told.data["problem"]:
        return warn("sensors", str(told.data["problem"]), out if "no " in told.data["kind"] else "training works "
                    "without it; what it means: docs/troubleshooting.md")  # fmt: skip
    absent = [name for name, value in told.data["reading"].items() if value is None]
    return ok("sensors", "all answer" if not absent else f"answer, but for {', '.join(absent)}")


def compiler_item(wanted: Sequence[str], found: str | None, trains: bool) -> Item:
    """Judge the C++ compiler that torch.compile needs for fast fingerprints."""
    if found:
        return ok("compiler", found)
    says = f"no C++ compiler ({', '.join(wanted)}): fingerprints run uncompiled, about ten times slower"
    return warn("compiler", says, "install g++ where training runs") if trains else ok("compiler", "none, none needed")


def extra_items(missing: Collection[str]) -> Iterator[Item]:
    """Judge the extras. One that is half there is a broken install."""
    for extra, (modules, needs) in EXTRAS.items():
        gone = [name for name in modules if name in missing]
        if not gone:
            yield ok(f"extra {extra}", "installed")
        elif len(gone) < len(modules):
            yield fail(f"extra {extra}", f"half installed, without {', '.join(gone)}", _pip(extra))
        else:
            yield warn(f"extra {extra}", f"not installed: {needs} cannot be used", _pip(extra))


def _pip(extra: str) -> str:
    return INSTALL_GRAFANA if extra == "grafana" else f"pip install 'lastgood[{extra}]'"


def urllib3_items(owners: Collection[str]) -> Iterator[Item]:
    """Warn when ``urllib3`` is not what everybody else in the environment takes it for."""
    if any(name.lower().replace("_", "-") == "urllib3-future" for name in owners):
        yield warn("urllib3", "replaced by urllib3-future, also for every other package here",
                   "pip uninstall urllib3 urllib3-future && pip install urllib3 && " + _pip("grafana"))  # fmt: skip


def program_items(found: Mapping[str, str | None]) -> Iterator[Item]:
    """Judge the servers' programs."""
    for part, path in found.items():
        if path:
            yield ok(part, path)
        else:
            out = f"Debian, Ubuntu: apt install {PACKAGES[part]}"
            yield warn(part, "not on PATH: lastgood stack cannot start it", out)
