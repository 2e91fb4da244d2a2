"""Write what one attempt after the other journals: rounds, saves, progress, starts and ends, by the real writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final

from fleet_run.causes import Cause
from fleet_run.cluster import Cluster
from lastgood.journal import JournalWriter, claim_attempt
from lastgood.pairing import environment_data
from lastgood.state import Parent, Place
from lastgood.topology_files import write_topology

STEP_SECONDS: Final = 6.0
STARTING_SECONDS: Final = 150.0
SAVE_EVERY: Final = 300  # steps: 30 minutes
REPLICA_EVERY: Final = 50
REPLAY_EVERY: Final = 200
PROGRESS_EVERY: Final = 5  # steps: 30 seconds
BLOCKED_SECONDS: Final = 2.5
CADENCE: Final = {"finite": 1, "conservation": 1, "replica": REPLICA_EVERY, "replay": REPLAY_EVERY, "at_rest": None}
ENVIRONMENT: Final = (
    "NVIDIA H100 80GB HBM3, torch 2.13.0+cu128, matmul high, cuda 12.8, cudnn 91002, cudnn deterministic True,"
    " cudnn benchmark False, driver 570.86.15, deterministic True"
)
VERSIONS: Final = {"lastgood": "0.2.0", "torch": "2.13.0+cu128", "python": "3.11.9"}

Writers = dict[int, JournalWriter]


@dataclass
class Training:
    """A run that is being trained, in its own time (``now``: unix seconds).

    ``saved``: the saves of the lineage of the attempt in progress, oldest first.
    """

    run_dir: Path
    run: str
    cluster: Cluster
    chance: Random
    now: float
    attempt: int = 0
    step: int = 0
    from_step: int = 0
    places: tuple[Place, ...] = ()
    saved: list[Parent] = field(default_factory=list)
    saved_at: dict[str, float] = field(default_factory=dict)  # path -> when it was saved
    at_step: Callable[[], None] = lambda: None
    """What else happens at a step; called once for each that writes anything."""
    probe_fails: str = ""
    """Why probes at saves do not run at present; empty: they run."""
    _writers: Writers = field(default_factory=dict)

    def clock(self) -> float:
        return self.now

    def writer(self, rank: int = 0) -> JournalWriter:
        """Return a rank's writer in the attempt in progress; it creates its file at its first event."""
        if rank not in self._writers:
            self._writers[rank] = JournalWriter(
                self.run_dir, self.run, self.attempt, f"rank-{rank:05d}", rank=rank, node=self.places[rank].node,
                clock=self.clock,
            )  # fmt: skip
        return self._writers[rank]

    def write(self, type: str, data: Mapping[str, Any], after: float = 0.0) -> None:
        """Journal an event of rank 0, so many seconds after the one before it."""
        self.now += after
        self.writer().write(type, data, step=self.step)

    # --- an attempt --------------------------------------------------------------------------------------------------

    def start(self, cause: Cause | None = None, down: float = 0.0, excluded: Sequence[str] = ()) -> None:
        """Begin the next attempt from the newest save of the lineage; ``cause`` is why there has to be one."""
        lost = self.step
        self.attempt, self._writers = claim_attempt(self.run_dir), {}
        self.places = self.cluster.places()
        parent = self.saved[-1] if self.saved and self.attempt > 1 else None
        self.step = self.from_step = parent.step if parent else 0
        data = {
            "world_size": len(self.places), "topology": write_topology(self.run_dir, self.attempt, self.places),
            "config": {"run_dir": f"/shared/runs/{self.run}", "run": self.run, "policy": "stop", "save_probe": True,
                       "replica_every": REPLICA_EVERY, "replay_every": REPLAY_EVERY, "at_rest_every": 0,
                       "accumulation": 1},
            "environment": environment_data([ENVIRONMENT] * len(self.places)), "versions": VERSIONS, "seed": 405,
            "cadence": CADENCE, "not_run": {"at_rest": "switched off"}, "parent": _data(parent),
            "parent_known": True, "parent_verified": True, "from_step": self.from_step,
        }  # fmt: skip
        self.write("run.started", data)
        if cause is not None:
            told = {"reason": cause.name, "seconds": round(down, 1), "lost_steps": lost - self.step}
            self.write("restart", told | {"excluded": list(excluded)}, 0.1)
        if parent is not None:
            loaded = _data(parent) | {"fingerprint": _fingerprint(parent.step), "checks": {"fingerprint": "passed"}}
            self.write("checkpoint.loaded", loaded, 20.0)
        else:
            self.save()
        self.now += STARTING_SECONDS

    def train(self, until: int) -> None:
        """Run the steps up to and including ``until``, with all that is due in them."""
        while self.step < until:
            first = self.step == self.from_step
            due = self.step + (1 if first else PROGRESS_EVERY - self.step % PROGRESS_EVERY)
            self.now += STEP_SECONDS * (min(due, until) - self.step)
            self.step = min(due, until)
            if self.step == due:
                self._due(first)

    def _due(self, first: bool) -> None:
        began, step = self.now, self.step
        if first or step % REPLICA_EVERY == 0:
            self.round("replica", "loop", step - 1)
        if first or step % REPLAY_EVERY == 0:
            self.round("replay", "first" if first else "audit", step)
        if step % PROGRESS_EVERY == 0:
            passed = {"finite": step, "conservation": step, "replica": step - 1 - (step - 1) % REPLICA_EVERY}
            passed["replay"] = step - step % REPLAY_EVERY
            took = STEP_SECONDS + self.chance.uniform(-0.05, 0.05)
            self.writer().progress({"step": step, "step_seconds": round(took, 4), "passed": passed}, step)
        self.now = began
        if step % SAVE_EVERY == 0:
            self.save()
        self.at_step()

    def round(
        self, check: str, phase: str, state_step: int, result: str = "passed", reason: str = "",
        exceptions: Mapping[int, tuple[str, str]] | None = None,
    ) -> None:  # fmt: skip
        """Journal one round of a collective check."""
        listed = [{"rank": r, "result": v[0], "reason": v[1]} for r, v in sorted((exceptions or {}).items())]
        data = {"check": check, "phase": phase, "state_step": state_step, "result": result, "reason": reason}
        self.write("check", data | {"exceptions": listed}, 0.3)

    def save(self) -> None:
        """Save a checkpoint: replica round and probe, start, end."""
        done = self.begin_save()
        number, step = self.attempt, self.step
        parent = self.saved[-1] if self.saved else Parent(number, step, done["path"])
        blocked = BLOCKED_SECONDS + self.chance.uniform(0, 1)
        self.write("checkpoint.saved", done | {
            "seconds": round(blocked + 20, 3), "fingerprint": _fingerprint(step, self.probe_fails),
            "parent": _data(parent), "bytes": 4_860_000_000_000 + step, "blocked_seconds": round(blocked, 3),
        }, blocked)  # fmt: skip
        self.saved.append(Parent(number, step, done["path"]))
        self.saved_at[done["path"]] = self.now

    def begin_save(self, replica: str = "passed") -> dict[str, Any]:
        """Run the checks before a save and say that it began; return what is known of it so far."""
        began = self.step > self.from_step
        probe = "not_run" if self.probe_fails or not began else "passed"
        if replica == "passed":
            self.round("replica", "save", self.step)
            if began:
                self.round("replay", "probe", self.step, probe, self.probe_fails)
        per_step = "passed" if began else "not_run"
        checks = {"finite": per_step, "conservation": per_step, "replica": replica, "replay": probe}
        data = {"attempt": self.attempt, "step": self.step, "path": self.path(), "checks": checks}
        if replica == "passed":
            self.write("checkpoint.started", data, 0.1)
        return data

    def path(self) -> str:
        """Return where this attempt saves the step in progress."""
        return f"checkpoints/a{self.attempt}-step-{self.step:07}"

    def end(self, reason: str | None) -> None:
        """End the attempt; None: nobody is left who could say so."""
        if reason is not None:
            code = {"completed": 0, "signal": 143}.get(reason, 1)
            self.write("run.ended", {"reason": reason, "exit_code": code, "last_step": self.step}, 0.2)
        for writer in self._writers.values():
            writer.close()

    def resume_from(self, step: int) -> Parent:
        """Forget the saves of the lineage after a step, and return the newest that is left."""
        while len(self.saved) > 1 and self.saved[-1].step > step:
            self.saved.pop()
        return self.saved[-1]


def _data(parent: Parent | None) -> Any:
    return {"attempt": parent.attempt, "step": parent.step, "path": parent.path} if parent else None


def _fingerprint(step: int, wrong: str = "") -> str:
    """Return what a deterministic job has at a step, in whatever attempt; ``wrong``: what made it another."""
    return sha256(f"step {step}{wrong}".encode()).hexdigest()[:32]
