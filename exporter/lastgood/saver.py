"""Save and resume under the eyes of the checks; journal both.

A save is a meeting of all ranks: entry (attendance, checks, perhaps a refusal), the user's own saving code, exit (did
it work everywhere). Rank 0 writes the record and the events; of a save that goes on in the background, when it is
complete (:mod:`lastgood.background_saves`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lastgood import checkpoints as files
from lastgood.attendance import Attendance, job_store
from lastgood.background_saves import BackgroundSave, Exit, Save, Wait, agree_on_exit
from lastgood.checkpoint_files import tensor_files
from lastgood.errors import ConfigError, RunDirError
from lastgood.fingerprint import TensorDigests, digest_tensors
from lastgood.judge import PROCEED
from lastgood.notice import warn
from lastgood.replica import weights
from lastgood.session import relative
from lastgood.sharded import Named, digest_whole, is_sharded

END_SECONDS: Final = 0.5
"""What an attempt that ends waits for saves in the background that are complete and only have to be recorded."""

if TYPE_CHECKING:
    from lastgood.monitor import Monitor


class Saver:
    """The saves and the resume of one attempt. ``parent``: the newest checkpoint of the lineage, as plain data."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.parent: dict[str, Any] | None = None
        self.parent_known = True
        self.parent_verified = True
        self._saves = 0
        self._background: list[BackgroundSave] = []  # as long on every rank; the newest, and those not complete

    # --- resume ------------------------------------------------------------------------------------------------------

    def resume(self, path: Path | None, step: int | None) -> None:
        """See :meth:`lastgood.Monitor.resume`."""
        monitor = self.monitor
        path = None if path is None else self._find(path)
        record = self._read_together(path, step)
        if record is None:
            self._resume_unknown(path, step)
            return
        assert path is not None
        self._verify(path, record)
        monitor.step = record["step"]
        loaded = {key: record[key] for key in ("attempt", "step", "path")}  # what was saved, wherever it lies now
        self.parent_known = record["run"] == monitor.config.run
        self.parent = loaded if self.parent_known else None
        monitor.start()
        self._write("checkpoint.loaded", {**loaded, "fingerprint": record["fingerprint"]} | _checked("passed"))

    def _find(self, path: Path) -> Path:
        """Return the path as given, or inside the run directory, as verdicts and tables name it."""
        inside = self.monitor.session.run_dir / path
        return path if path.exists() or not inside.exists() else inside

    def _read_together(self, path: Path | None, step: int | None) -> dict[str, Any] | None:
        """Read the record on every rank; all raise when one of them cannot, or when they read different ones."""
        record, problem = None, ""
        try:
            record = None if path is None else files.read_record(path)
            if record is None and (step is None or step < 0):
                problem = self._what_is_missing(path)
        except RunDirError as error:
            problem = f"{error}"
        given = [record["step"], record["fingerprint"]] if record else [step, ""]
        with self._attendance("resume", "monitor.resume", lambda missing: None):
            rows = self.monitor.world.gather_json([problem, *given])
        if bad := [(rank, row[0]) for rank, row in enumerate(rows) if row[0]]:
            who = "" if len(bad) == len(rows) else f"rank {bad[0][0]}: "
            raise (RunDirError if "cannot be read" in bad[0][1] else ConfigError)(f"{who}{bad[0][1]}")
        if any(row != rows[0] for row in rows):
            steps = ", ".join(f"rank {rank} step {row[1]}" for rank, row in enumerate(rows[:4]))
            raise ConfigError(f"the ranks resume from different checkpoints ({steps}, ...): give all of them the same")
        return record

    def _what_is_missing(self, path: Path | None) -> str:
        if path is not None and not path.exists():
            return f"{path} does not exist, here or in {self.monitor.session.run_dir}: give the checkpoint's path"
        what = "monitor.resume(None)" if path is None else f"{path} has no lastgood record beside it, so it"
        return f"{what} needs the step the state was saved at: monitor.resume(..., step=n)"

    def _resume_unknown(self, path: Path | None, step: int | None) -> None:
        assert step is not None
        self.parent_known = self.parent_verified = False
        self.monitor.step = step
        self.monitor.start()
        name = "" if path is None else relative(path, self.monitor.session.run_dir)
        self._write("checkpoint.loaded", {"attempt": 0, "step": step, "path": name} | _checked("not_run"))

    def _verify(self, path: Path, record: Mapping[str, Any]) -> None:
        """Compare what was loaded with the record on every rank; all raise when any differs."""
        monitor = self.monitor
        live = self._digests()
        names = files.differences(record, live) or self._replicas_that_differ()
        bad = monitor.world.agree(not names)
        if not bad:
            return
        names, text = monitor.world.broadcast_json([names, live.hex()], source=bad[0])
        where = f" on rank {', '.join(map(str, bad))}" if len(bad) < monitor.world.size else ""
        loaded = {key: record[key] for key in ("attempt", "step", "path")} | {"fingerprint": text}
        self._write("checkpoint.loaded", loaded | _checked("failed") | {"reason": f"differs in {', '.join(names[:5])}"})
        files.refuse_mismatch(path, record, text, names, where)

    def _replicas_that_differ(self) -> list[str]:
        """Return what ranks that hold the same part loaded differently: the sum over shards counts one of them.

        Empty for a model that is not sharded, where every rank has compared all that it holds. Collective.
        """
        shards = self.monitor._shards
        result = None if shards is None else shards.compare(self.monitor.inspector.shared_state(), gathered=False)
        return [] if result is None or result.ruling is None else [result.tensor or "a tensor of some ranks"]

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Journal ``run.started`` (rank 0)."""
        monitor = self.monitor
        if monitor.world.rank != 0:
            return
        data = monitor.session.started_data(
            cadence=monitor.inspector.cadence(),
            not_run=monitor.inspector.why_not,
            parent=self.parent,
            parent_known=self.parent_known,
            parent_verified=self.parent_verified,
            from_step=monitor.step,
            **facts,
        )
        monitor.publisher.write("run.started", data, monitor.step)

    # --- save --------------------------------------------------------------------------------------------------------

    @contextmanager
    def save(self, path: Path) -> Iterator[Save]:
        """See :meth:`lastgood.Monitor.checkpoint`."""
        blocked = files.Stopwatch()
        data, digests = self._enter(path)
        saving, save = files.Stopwatch(), Save()
        try:
            yield save
        except Exception as error:
            self._finish(False)
            self._write("checkpoint.failed", {**data, "reason": f"{type(error).__name__}: {error}"})
            raise
        wait, problem = self._completion(save)
        exit = self._finish(not problem, wait is not None)
        if exit.problem:
            self._write("checkpoint.failed", {**data, "reason": problem or exit.problem})
            return
        record = self.monitor._guarded(lambda: self._make_record(data, digests), None)
        data["blocked_seconds"] = blocked.seconds()
        end = partial(self._end, path, data, record, saving)
        if exit.writers:
            self._follow(exit, wait, end)
        else:
            end("")

    def _enter(self, path: Path) -> tuple[dict[str, Any], TensorDigests | None]:
        """Meet, and check what is to be saved. Returns what the event says so far, and the fingerprints."""
        monitor, name = self.monitor, relative(path, self.monitor.session.run_dir)
        self._saves += 1
        with self._attendance(f"save/{self._saves}", "monitor.checkpoint(path)", partial(self._waits, name)):
            checked = monitor._guarded(self._examine, None)
        decision, results, digests = checked if checked is not None else (PROCEED, {}, None)
        data = {"attempt": monitor.session.attempt, "step": monitor.step, "path": name, "checks": results}
        if decision.action == "stop":
            self._write("checkpoint.failed", {**data, "reason": "integrity"})
            monitor.stop(decision)
        self._write("checkpoint.started", data)
        return data, digests

    def complete(self) -> None:
        """Wait for the saves that go on in the background, and record them. Collective, at the end of an attempt."""
        if not self._background:
            return
        for save in self._background:
            save.wait_for_own()
        self._finish(True)  # now every rank has said how its own ended
        self.end()

    def end(self) -> None:
        """Record what is complete and give up what is not. Never collective; takes no longer than END_SECONDS."""
        deadline = time.monotonic() + END_SECONDS
        for save in self._background:
            save.finish(max(0.0, deadline - time.monotonic()))

    def _follow(self, exit: Exit, wait: Wait | None, end: Callable[[str], None]) -> None:
        world = self.monitor.world
        store = job_store() if world.size > 1 else None
        save = BackgroundSave(f"lastgood/saved/{exit.token:x}", world.rank, exit.writers, wait, store, end)
        self._background = [*(s for s in self._background if not s.settled), save]

    def _completion(self, save: Save) -> tuple[Wait | None, str]:
        """Return what waits for the save's future, and what is wrong with it."""
        try:
            return save.completion(), ""
        except TypeError as error:
            warn(f"{error}. The save is not recorded.")
            return None, f"{error}"

    def _attendance(self, meeting: str, call: str, on_missing: Callable[[list[int]], None]) -> Attendance:
        world, timeout = self.monitor.world, self.monitor.config.save_timeout_seconds
        meeting = f"{self.monitor.session.attempt}/{meeting}"
        return Attendance(world.rank, world.size, meeting, call, timeout, on_missing)

    def _waits(self, name: str, missing: list[int]) -> None:
        """Journal, on the lowest rank that waits, which ranks have not entered the save."""
        data = {"attempt": self.monitor.session.attempt, "step": self.monitor.step, "path": name}
        data |= {"reason": f"waits for rank {', '.join(map(str, missing))}", "missing_ranks": missing}
        self.monitor.publisher.write("checkpoint.started", data, self.monitor.step)

    def _finish(self, ok: bool, goes_on: bool = False) -> Exit:
        """Tell each other whether the saving code worked, and whether it goes on in the background. Collective."""
        try:
            return agree_on_exit(self.monitor.world, ok, goes_on)
        except Exception as error:  # a rank died while saving: its connection is gone
            self.monitor._failed(error)
            return Exit("a rank was lost during the save")

    def _make_record(self, data: Mapping[str, Any], digests: TensorDigests | None) -> dict[str, Any] | None:
        """Return what this save held, while the tensors are as they were. Collective where the buffers are sharded."""
        monitor = self.monitor
        if monitor.world.rank != 0 and not self._is_sharded():
            return None
        buffers = self._digest(files.named_buffers(monitor.module))
        if digests is None or monitor.world.rank != 0:
            return None
        facts = {key: data[key] for key in ("attempt", "step", "path")}
        facts |= {"run": monitor.config.run, "world_size": monitor.world.size}
        parameters = sum(1 for _ in weights(monitor.module, monitor.inspector.ignored))
        return files.make_record(facts, digests, buffers, parameters)

    def _end(
        self, path: Path, data: dict[str, Any], record: dict[str, Any] | None, saving: files.Stopwatch, problem: str
    ) -> None:
        """The save is over on every rank: record it (rank 0), perhaps in a thread of its own."""
        data["seconds"] = saving.seconds()
        if problem:
            self._write("checkpoint.failed", {**data, "reason": problem})
        elif self.monitor.world.rank == 0:
            self.monitor._guarded(lambda: self._record(path, data, record), None)

    def _record(self, path: Path, data: dict[str, Any], record: dict[str, Any] | None) -> None:
        own = {"attempt": data["attempt"], "step": data["step"], "path": data["path"]}
        if not path.exists():
            self._write("checkpoint.failed", {**data, "reason": "nothing was written"})
            warn(f"{path} was not written: save inside the context")
            return
        parent = self.parent if self.parent is not None or not self.parent_known or data["step"] else own
        if record is not None:
            try:
                files.write_record(path, {**record, "parent": parent, "files": tensor_files(path)})
            except OSError as error:
                self.monitor.metrics.error("check")
                warn(f"{path} was saved without its record ({error}): a load cannot verify it")
            data["fingerprint"] = record["fingerprint"]
        self._write("checkpoint.saved", {**data, "parent": parent, "bytes": files.size_of(path)})
        if self.parent is None or not self.parent_known or data["step"] >= self.parent["step"]:
            self.parent, self.parent_known = own, True  # on rank 0, which alone names parents

    def _examine(self) -> Any:
        monitor = self.monitor
        return monitor.inspector.examine("save", monitor.step, probe=monitor.config.save_probe)

    def _digests(self) -> TensorDigests:
        return self._digest(self.monitor.inspector.shared_state())

    def _digest(self, items: Iterable[Named]) -> TensorDigests:
        """Fingerprint whole tensors. Collective for a sharded model, of which each rank holds a part."""
        return digest_whole(self.monitor.world, items) if self._is_sharded() else digest_tensors(items, lanes=2)

    def _is_sharded(self) -> bool:
        return any(is_sharded(tensor) for _, tensor in self.monitor.inspector.shared_state())

    def _write(self, type: str, data: Mapping[str, Any]) -> None:
        """Journal an event of rank 0. A save that went on in the background is of the step that it holds."""
        if self.monitor.world.rank == 0:
            self.monitor.publisher.write(type, data, data.get("step", self.monitor.step))


def _checked(result: str) -> dict[str, Any]:
    return {"checks": {"fingerprint": result}}
