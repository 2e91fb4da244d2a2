"""Read the demo's command line: what to break, where, when, and where the run goes.

Every mistake is one sentence (:class:`UsageError`) that says the value, the rule and the way out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

from lastgood.config import load
from lastgood.devices.fake_nvml import MODES
from lastgood.errors import ConfigError
from lastgood.push_receiver import push_address

FAULTS: Final = {
    "gradient": "one device's backward pass is wrong by a plausible finite amount, from the fault step on",
    "nan": "one device's gradient holds NaN, once",
    "reduce-all": "the averaging gives every rank the same wrong value, once",
    "reduce-one": "the averaging gives one rank a wrong value, once",
    "weight": "one bit of one rank's weights flips after an update, once",
    "optimizer": "one bit of one rank's optimizer state flips after an update, once",
    "data": "one rank's batch has every target ignored, so that its loss is 0/0, once",
    "none": "nothing is broken",
}
"""Fault -> what it does, in words."""

FAKE_GPUS: Final = MODES
"""What a fake GPU can do: mode -> words."""

NODE_CHOICES: Final = range(2, 5)
RANK_CHOICES: Final = range(1, 5)
DEFAULT_STEP: Final = 67


class UsageError(Exception):
    """The command line cannot be used as it is: the message is one sentence for the terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one demo does."""

    fault: str = "gradient"
    rank: int = 3
    """The rank whose device has the fault (``reduce-all``: every rank has it alike; ``none``: unused)."""
    step: int = DEFAULT_STEP
    nodes: int = 3
    ranks_per_node: int = 2
    steps: int = 150
    save_every: int = 25
    """Steps between two saves; not on the command line."""
    audit_every: int = 50
    """Steps between two replays, and between two replica comparisons in the loop; not on the command line."""
    seed: int = 0
    save_probe: bool = False
    replay: bool = True
    run_dir: Path = Path("runs/demo")
    port: int = 8490
    console: bool = True
    fake_gpu: str | None = None
    """What the fake GPU of the faulty device does (``lastgood.devices.fake_nvml.MODES``); None: no fake GPUs."""
    push: str = ""
    """Remote-write address that the ranks push their metrics to."""

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.nodes * self.ranks_per_node

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the names of the nodes that attempt 1 runs on: node-a, node-b, ..."""
        return tuple(f"node-{chr(ord('a') + number)}" for number in range(self.nodes))

    @property
    def spare(self) -> str:
        """Return the name of the node that waits to replace another."""
        return f"node-{chr(ord('a') + self.nodes)}"

    @property
    def fault_node(self) -> str:
        """Return the node of the device that has the fault."""
        return self.node_names[self.rank // self.ranks_per_node]

    @property
    def fault_slot(self) -> int:
        """Return the slot on that node of the device that has the fault."""
        return self.rank % self.ranks_per_node


def parse(arguments: Sequence[str], *, now: datetime | None = None) -> Options:
    """Return the options, or raise :class:`UsageError`. ``now`` names the default run directory."""
    given = _parser().parse_args(arguments)
    world_size = given.nodes * given.ranks_per_node
    rank = 2 * given.ranks_per_node - 1 if given.rank is None else given.rank
    step = min(DEFAULT_STEP, given.steps) if given.step is None else given.step
    _require(given.steps >= 1, f"--steps {given.steps}: a run has at least 1 step")
    _require(given.seed >= 0, f"--seed {given.seed}: a seed is 0 or more")
    _require(0 <= rank < world_size,
             f"--rank {rank}: {given.nodes} nodes with {given.ranks_per_node} ranks each have the ranks "
             f"0 to {world_size - 1}")  # fmt: skip
    _require(1 <= step <= given.steps, f"--step {step}: the run has the steps 1 to {given.steps} (--steps)")
    _require(1 <= given.port <= 65_535, f"--port {given.port}: a port is 1 to 65535")
    return Options(
        fault=given.fault,
        rank=rank,
        step=step,
        nodes=given.nodes,
        ranks_per_node=given.ranks_per_node,
        steps=given.steps,
        seed=given.seed,
        save_probe=given.save_probe,
        replay=given.replay == "on",
        run_dir=_run_dir(given.run_dir, now or datetime.now(UTC)),
        port=given.port,
        console=not given.no_console,
        fake_gpu=given.fake_gpu,
        push=_push_url(given.push),
    )


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises its complaint instead of printing usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


def _parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {name:<12}{words}" for name, words in FAULTS.items())
    parser = _Parser(
        prog="lastgood demo",
        description="Train a small model on simulated nodes of this machine, break one device on purpose, and show "
        "what lastgood makes of it: the verdict, the recovery, the files.",
        epilog=f"faults:\n{faults}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--fault", choices=FAULTS, default="gradient", help="what to break (default: gradient)", metavar="FAULT")
    add("--rank", type=int, help="the rank to break (default: the last rank of the second node)")
    add(
        "--step",
        type=int,
        help=f"the step from which it is broken (default: {DEFAULT_STEP}, or the last step of a shorter run)",
    )
    add("--nodes", type=int, choices=NODE_CHOICES, default=3, help="nodes to train on; one more is spare (default: 3)")
    add("--ranks-per-node", type=int, choices=RANK_CHOICES, default=2, help="ranks on each node (default: 2)")
    add("--steps", type=int, default=150, help="steps to train (default: 150)")
    add("--seed", type=int, default=0, help="seed of the model and of the batches (default: 0)")
    add("--save-probe", action="store_true", help="replay at every save too, as the product does by default")
    add("--replay", choices=("on", "off"), default="on", help="off: without the replay check (default: on)")
    add("--run-dir", help="where the run goes (default: runs/demo-<UTC time>)")
    add("--port", type=int, default=8490, help="port of the console; taken: the next free one (default: 8490)")
    add("--no-console", action="store_true", help="end without starting the console")
    add("--fake-gpu", nargs="?", const="steady", choices=FAKE_GPUS, metavar="MODE",
        help="give every rank a fake GPU, whose power and temperature are made up; MODE is what the faulty device's "
        f"does: {', '.join(FAKE_GPUS)} (default: steady)")  # fmt: skip
    add("--push", metavar="URL", help="remote-write address that the ranks push their metrics to, such as "
        "http://127.0.0.1:9090/api/v1/write; every second, or every $LASTGOOD_PUSH_SECONDS")  # fmt: skip
    return parser


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise UsageError(complaint)


def _push_url(url: str | None) -> str:
    """Return the address of a receiver that can be pushed to from here."""
    if not url:
        return ""
    _require(find_spec("cramjam") is not None, "--push needs the push extra: pip install 'lastgood[push]'")
    try:
        has_login = push_address(url).has_login
        load({"LASTGOOD_PUSH_SECONDS": os.environ.get("LASTGOOD_PUSH_SECONDS", "")}, run="demo")
    except ConfigError as error:
        raise UsageError(f"--push: {error}") from None
    _require(not has_login, "--push: leave the login out of the address and set LASTGOOD_PUSH_BASIC_AUTH=user:password")
    return url


def _run_dir(text: str | None, now: datetime) -> Path:
    """Return a directory that holds no run yet. A new name is in lower case, so that it is the run's id too."""
    if text is None:
        return Path("runs") / f"demo-{now:%Y%m%dt%H%M%Sz}"
    # A path would turn "s3://" into a folder named "s3:".
    _require("://" not in text, f"--run-dir {text}: a demo writes to a directory of this machine; give a local path")
    given = Path(text)
    _require(not given.exists() or given.is_dir(), f"--run-dir {given}: this is a file; give a new directory")
    _require(
        not (given / "journal").exists(),
        f"--run-dir {given}: it already holds a run, and a demo starts a new one; give another --run-dir",
    )
    return given
