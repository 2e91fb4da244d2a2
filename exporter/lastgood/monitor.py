"""Watch a training job: the public face of the training side.

``watch`` attaches to a model and its optimizers and returns a :class:`Monitor`. From then on the checks run in hooks;
the loop calls ``loss``, ``checkpoint``, ``resume``, ``phase`` and ``close``. The numbers of a step are judged at the
end of its synchronised backward, where all ranks may communicate; the optimizer hooks only read that decision.

Nothing here raises into the loop but :class:`IntegrityError` under policy ``stop`` (and :class:`ConfigError` before
the first step). A failure of our own is one warning and one counter.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from prometheus_client import CollectorRegistry
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from lastgood import config as settings_of
from lastgood import fingerprint_compiled
from lastgood.admissible import is_sharded_model, require_alike, require_arguments, require_wrapper
from lastgood.background_saves import Save
from lastgood.comm import World
from lastgood.eager import eager
from lastgood.errors import ConfigError, IntegrityError
from lastgood.fsdp_groups import groups_of, parameters
from lastgood.fsdp_watch import FsdpWatch, unmeasurable
from lastgood.gather_digest import GatherDigest, ungatherable
from lastgood.guard import Guard, closure_in, is_first_step, is_fused, only_makes_state, way_of, with_closure
from lastgood.injection_points import InjectionPoints, NoInjection
from lastgood.inspector import Inspector
from lastgood.judge import PROCEED, Decision
from lastgood.late import Armed, LateReading, Sent
from lastgood.local import LocalWatch
from lastgood.notice import warn
from lastgood.pacing import FIRST_STEP_SECONDS, Pace
from lastgood.push import END_SECONDS
from lastgood.readback import readback_for
from lastgood.recorder import Recorder
from lastgood.reduce import BackwardView, ReduceWatch
from lastgood.replica import ignored_by
from lastgood.saver import Saver
from lastgood.session import Session
from lastgood.sharded_replay import ShardedReplayer, unreplayable
from lastgood.sharded_replicas import ShardedReplicas
from lastgood.user_hook import is_lossless, limits, name_of
from lastgood.wrappers import ddp_of, innermost, plain_optimizer


def watch(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    loss_fn: Callable[[nn.Module, Any], Any] | None = None,
    scaler: Any = None,
    lossless_hook: bool = False,
    injector: InjectionPoints | None = None,
    registry: CollectorRegistry | None = None,
    **settings: Any,
) -> Monitor:
    """Attach lastgood to a training job. Every rank calls it, after wrapping the model and before the first step.

    ``model``: a plain module in a job of one rank, a ``DistributedDataParallel``, or a module that ``fully_shard`` has
    sharded (FSDP2, on a mesh of one or two dimensions over all ranks); each may be compiled. A
    communication hook of your own must be registered before; ``lossless_hook`` says that it returns the plain average
    of the buckets, so that ``conservation`` can run around it. ``loss_fn(model, batch)`` returns the scalar loss (or a
    tuple that starts with it); without it ``replay`` is *not run*. ``scaler``: the ``GradScaler`` of the loop.
    ``settings``: the fields of :class:`lastgood.config.Config`. Raises :class:`ConfigError`.
    """
    require_arguments(model, optimizer, loss_fn, scaler, lossless_hook, injector=injector, registry=registry)
    config = settings_of.load(**settings)
    optimizers = [plain_optimizer(o) for o in ([optimizer] if isinstance(optimizer, Optimizer) else optimizer)]
    module, ddp = innermost(model), ddp_of(model)
    device = next((p.device for p in parameters(module)), torch.device("cpu"))
    world = World(ddp.process_group if ddp is not None else None)
    require_wrapper(model, world, optimizers)
    require_alike(world, module)
    named = bool(settings.get("run") or os.environ.get("LASTGOOD_RUN"))
    session = Session(config, world, device, registry, named=named)
    return Monitor(
        session,
        model,
        module,
        optimizers,
        loss_fn=loss_fn,
        scaler=scaler,
        lossless_hook=lossless_hook,
        injector=injector or NoInjection(),
    )


class Monitor:
    """What ``watch`` returns. ``step``: optimizer steps done, counted from the run's start, surviving restarts."""

    def __init__(
        self,
        session: Session,
        model: nn.Module,
        module: nn.Module,
        optimizers: Sequence[Optimizer],
        *,
        loss_fn: Callable[[nn.Module, Any], Any] | None,
        scaler: Any,
        lossless_hook: bool,
        injector: InjectionPoints,
    ) -> None:
        self.session, self.config, self.world = session, session.config, session.world
        self.metrics, self.publisher = session.metrics, session.publisher
        self.model, self.module, self.optimizers = model, module, list(optimizers)
        self.injector, self._scaler = injector, scaler
        self.step = 0
        self._ddp = ddp_of(model)
        self._lossless = self._ddp is not None and is_lossless(self._ddp, lossless_hook)
        self._recorder = None if loss_fn is None else Recorder(module, loss_fn, session.device, model)
        self._groups = groups_of(module) if self.world.size > 1 else ()
        self._shards = self._sharded_replicas()
        self.inspector = Inspector(
            session,
            self.config,
            module,
            self.optimizers,
            self._recorder,
            cannot=self._limits(lossless_hook),
            promised=lossless_hook,
            scaled=scaler is not None and scaler.is_enabled(),
            ignored=ignored_by(self._ddp or model),
            shards=self._shards,
            replayer=self._sharded_replayer(),
        )
        if self._shards is not None and self._shards.gathers is not None:
            self._shards.gathers.due = self.inspector.replica_due
            self._shards.gathers.timed = lambda: self.inspector.spending.on("replica", runs=0)
        fingerprint_compiled.configure(self.config.compile_checks, self._not_compiled)
        fingerprint_compiled.prepare(session.device, [p.dtype for p in parameters(module)])
        self.saver = Saver(self)
        self._guard = Guard()
        self._decision: Decision = PROCEED
        self._micro = 0
        self._owed: Decision = PROCEED  # what a step that was judged late demands
        self._flag: Tensor | None = None  # 1.0 on the device where the step in progress must not enter the weights
        self._kept_out: bool | None = None  # the flag, where the host has read it
        self._pending = False  # a synchronised backward has ended and no optimizer has stepped since
        self._loss: Tensor | None = None
        self._uncompiled_loss = eager(self._recorded_loss)
        self._makes_state = False  # the optimizer step in progress is none of training (get_state_dict)
        self._stepped: set[int] = set()  # optimizers that stepped since the last count
        self._pace = Pace()
        self._phase = "training"
        self._started = self._closed = self._ended = False
        self._process = os.getpid()
        self._stopped = ""
        self._handled: BaseException | None = None
        self._reduce: ReduceWatch | FsdpWatch | None = None
        self._local: LocalWatch | None = None
        self._late: LateReading | None = None
        injector.journal_to(self.publisher.write)
        self._attach()

    @property
    def attempt(self) -> int:
        """Return the number of this (re)start of the run, from 1."""
        return self.session.attempt

    @property
    def passed(self) -> dict[str, int]:
        """Return the newest step each check passed on this rank; a check that never passed is left out."""
        return dict(self.inspector.judge.passed)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def loss(self, batch: Any) -> Any:
        """Return ``loss_fn(model, batch)`` and remember what it depended on, so that another rank can replay it.

        Code that is compiled around it ends here: the model runs compiled where it was compiled itself.
        """
        return self._uncompiled_loss(batch)

    def _recorded_loss(self, batch: Any) -> Any:
        if self._recorder is None:
            raise ConfigError("monitor.loss needs loss_fn: pass loss_fn=... to lastgood.watch")
        if self._phase != "training" or self._closed or not torch.is_grad_enabled():
            return self._recorder.loss_fn(self.model, batch)
        self.start()
        step = self.step + 1
        if self._micro == 0:
            self.injector.on_step(step)
            self._guarded(lambda: self.inspector.before_forward(step), None)
            self.injector.resting(step, self.module, self.optimizers[0])
        batch = self.injector.batch(step, batch)
        if self._shards is not None:
            self._shards.begin_micro()
        audit = self._micro == 0 and self.inspector.replay_due(step)
        self._micro += 1
        out = self._recorder.run(self.model, batch, step, audit)
        self._loss = self._recorder.current[-1].loss
        if self._local is not None:
            self._pending = True
        return out

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Say that something else than training goes on ("evaluation"): nothing is recorded, no deadline runs."""
        before, self._phase = self._phase, name
        self.metrics.deadline(time.time() + FIRST_STEP_SECONDS)
        try:
            yield
        finally:
            self._phase = before
            self._pace.forget()
            self.metrics.deadline(self._deadline())

    def checkpoint(self, path: str | Path) -> AbstractContextManager[Save]:
        """Return a context to save in; every rank enters it at the same step, also those that write nothing.

        On entry: replica of weights and optimizer state, and a replay probe. A failed check refuses the save by
        raising :class:`IntegrityError` under policy ``stop``. On exit rank 0 writes the record and journals the save.

        A save that goes on after the context is followed by its future, ``with monitor.checkpoint(path) as save:
        save.future = dcp.async_save(...)``, and recorded when that is complete on every rank that has one.
        """
        if self._closed:
            self.inspector.judge.say("monitor.checkpoint came after close: no check ran, and the save has no record")
            return nullcontext(Save())
        self.start()
        self._settle()
        if self._owed.action == "stop":
            self.stop(self._owed)
        return self.saver.save(Path(path))

    def resume(self, path: str | Path | None, *, step: int | None = None) -> None:
        """Say from which checkpoint model and optimizer were loaded; every rank, before the first step.

        Fingerprints the live tensors against the stored record: a mismatch raises :class:`IntegrityError` naming
        them. ``resume(None, step=n)``: the parent is unknown, what follows is at best *unverified*. Raises
        :class:`ConfigError` after the first step, or for a path without a record when no ``step`` is given.
        """
        if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
            raise ConfigError(f"step={step!r}: expected the step that the state was saved at, a whole number")
        if self._closed:
            raise ConfigError(
                "monitor.resume came after close: call lastgood.watch again, and resume with that monitor"
            )
        if self._started:
            raise ConfigError(f"monitor.resume came after step {self.step} had begun: call it before the first step")
        self.saver.resume(None if path is None else Path(path), step)

    def close(self) -> None:
        """Audit what the last steps left (replica, then replay) and end the attempt.

        Saves that go on in the background are waited for.
        Collective, except after an exception, where it only says how the attempt ended. Not called: the last steps
        stay unaudited.
        Raises :class:`IntegrityError` under policy ``stop`` when the audit fails.
        """
        if self._closed:
            return
        failing = sys.exc_info()[1] not in (None, self._handled) or bool(self._stopped)
        if failing or not self._started:
            self._end("integrity" if self._stopped else "exception" if failing else "completed", 1 if failing else 0)
            return
        self._guarded(self.saver.complete, None)
        self._settle()
        decision = self._guarded(lambda: self.inspector.examine("close", self.step, probe=True)[0], PROCEED)
        decision = self._owed.worse(decision)
        stop = decision.action == "stop"
        self._end("integrity" if stop else "completed", 1 if stop else 0)
        if stop:
            raise IntegrityError(decision.message, decision.verdict)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self._closed:
            self._end("integrity" if issubclass(kind, IntegrityError) else "exception", 1)

    # --- start and end -----------------------------------------------------------------------------------------------

    def start(self, **facts: Any) -> None:
        """Journal the attempt's beginning, once its first step is known."""
        if self._started:
            return
        self._started = True
        self._handled = sys.exc_info()[1]  # a whole run may take place inside an exception handler
        self.inspector.start_step = self.inspector.review.start = self.step
        self.saver.begin(facts)
        self.metrics.step(self.step, None, time.time() + FIRST_STEP_SECONDS)

    def stop(self, decision: Decision) -> None:
        """Raise what policy ``stop`` demands. Journals the end first: the launcher may kill this process at once."""
        self._stopped = decision.message
        self._journal_end("integrity", 1)
        self._guarded(self.session.pusher.end, None)
        raise IntegrityError(decision.message, decision.verdict)

    def _end(self, reason: str, exit_code: int) -> None:
        self._closed = True
        began = time.monotonic()
        atexit.unregister(self._at_exit)
        self._guarded(self.saver.end, None)
        self._journal_end(reason, exit_code)
        self.session.close(max(0.0, END_SECONDS - (time.monotonic() - began)))

    def _journal_end(self, reason: str, exit_code: int) -> None:
        if self._started and self.world.rank == 0 and not self._ended:
            self._ended = True
            data = {"reason": reason, "exit_code": exit_code, "last_step": self.step}
            self.publisher.write("run.ended", data, self.step)

    def _at_exit(self) -> None:
        """The script ended without close: say how, if it can be told. Never collective, and never in a forked child."""
        if not self._closed and os.getpid() == self._process:
            crashed = getattr(sys, "last_exc", None) is not None or getattr(sys, "last_value", None) is not None
            self._end("integrity" if self._stopped else "exception" if crashed else "completed", 1 if crashed else 0)

    # --- hooks -------------------------------------------------------------------------------------------------------

    def _sharded_replicas(self) -> ShardedReplicas | None:
        """Return what compares the ranks of a sharded model; None for any other. Collective."""
        if not is_sharded_model(self.module) or self.world.size == 1:
            return None
        seen = not ungatherable(self._groups)
        gathers = GatherDigest(self._groups, lambda: self.step + 1, self._failed) if seen else None
        return ShardedReplicas(self.world, self.session.nodes, self.module, gathers)

    def _sharded_replayer(self) -> ShardedReplayer | None:
        """Return what replays on a sharded model; None where it is not sharded, or cannot be replayed."""
        if self._shards is None or self._shards.gathers is None or self._recorder is None:
            return None
        session, order = self.session, self._shards.gathers.order
        return ShardedReplayer(self.world, self._recorder, session.nodes, session.environments, self._groups, order)

    def _limits(self, lossless_hook: bool) -> dict[str, str]:
        """Return check -> why it cannot run for the way in which the model is wrapped."""
        if self._shards is None:
            return {} if self._ddp is None else limits(self._ddp, lossless_hook)
        why = {"conservation": unmeasurable(self._groups), "replica": self._shards.why_not,
               "replay": unreplayable(self._groups, self.world) or ungatherable(self._groups)}  # fmt: skip
        return {check: reason for check, reason in why.items() if reason}

    def _attach(self) -> None:
        atexit.register(self._at_exit)
        heard: dict[str, Any] = {
            "on_backward": self._after_backward,
            "on_unchecked": self._unchecked,
            "on_error": lambda error: self._failed(error),
            "injector": self.injector,
            "step": lambda: self.step + 1,
            "spending": self.inspector.spending,
            "side": self.inspector.side,
        }
        readback = readback_for(self.session.device)
        if readback.late and not any(isinstance(optimizer, LBFGS) for optimizer in self.optimizers):
            self._late = self._late_reading()
            heard |= {"readback": readback, "late": self._late}
        if self._shards is not None:
            self._reduce = FsdpWatch(
                self.module,
                self._groups,
                self.world,
                self.session.nodes,
                flags=lambda: (self._loss, False, self.step + 1),
                **heard,
            )
        elif self._ddp is not None and self.world.size > 1:
            self._reduce = ReduceWatch(
                self._ddp,
                self.world,
                flags=lambda: (self._loss, self.inspector.previous_odd, self.step + 1),
                plain=not name_of(self._ddp),
                lossless=self._lossless,
                **heard,
            )
            if not self._reduce.measures:
                self.inspector.why_not.setdefault("conservation", "the job has a communication hook of its own")
        else:
            self._local = LocalWatch(self.module, self.world.rank, readback)
        for number, optimizer in enumerate(self.optimizers):
            optimizer.register_step_pre_hook(eager(self._before_step))
            optimizer.register_step_post_hook(eager(partial(self._after_step, number)))
        if self._scaler is not None:
            self._count_scaled_steps(self._scaler)

    def _after_backward(self, view: BackwardView) -> None:
        if self._phase != "training" or self._closed:
            return
        if self._shards is not None:
            self._shards.end_micro()
        audit = self._micro >= self.config.accumulation or self._micro == 0
        step = self.step + 1
        decision = self._guarded(lambda: self.inspector.after_backward(view, step, audit), PROCEED)
        self._decision = decision if not self._pending else self._decision.worse(decision)
        self._pending = True

    def _late_reading(self) -> LateReading:
        """Return what judges a step when the next backward has ended.

        Not with LBFGS, which reads its gradients inside the step, where nothing can keep them from it.
        """
        if self._recorder is not None and self.world.size > 1:
            self._recorder.keeps_the_step_before = True
        return LateReading(
            self.world.size,
            is_due=lambda step: self._phase != "training" or self._closed or self.inspector.reads_at_once(step),
            arm=self.inspector.arm,
            on_kept=self._read_later,
            judge=self._judge_late,
        )

    def _read_later(self) -> None:
        if self._shards is not None:
            self._shards.end_micro()
        if not self._pending:
            self._decision = PROCEED
        self._pending = True

    def _judge_late(self, sent: Sent, armed: Armed) -> None:
        if not self._closed:
            judged = self._guarded(lambda: self.inspector.judge_late(sent.view(), sent.step, armed), PROCEED)
            self._owed = self._owed.worse(judged)

    def _settle(self) -> None:
        """Judge the step that is still to be read. Collective."""
        if self._late is not None:
            self._guarded(self._late.settle, None)

    def _unchecked(self) -> None:
        self.inspector.judge.say("no check runs inside ddp.join(): ranks that have finished could not take part")
        self._decision, self._pending = PROCEED, True

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Let the step begin, or let it begin when the closure that makes its gradients has returned."""
        self._guard.restore()
        if self._closed:
            return None
        self._guarded(self.inspector.side.join, None)  # what reads weights and state beside the step has read them
        closure = closure_in(args, kwargs)
        untold = closure is None and not self._pending
        self._makes_state = untold and self._guarded(lambda: only_makes_state(optimizer), False)
        if self._makes_state:
            return None
        self.start()
        if closure is None or isinstance(optimizer, LBFGS):
            self._begin_step(optimizer)
        if closure is None:
            return None
        after = eager(self._after_closure)
        return with_closure(args, kwargs, lambda: after(optimizer, closure()))

    def _after_closure(self, optimizer: Optimizer, result: Any) -> Any:
        """Read the decision about the gradients that the closure made, before the optimizer does.

        LBFGS runs its closure several times in a step and is counted at its next one; only a stop reaches it at once.
        """
        if isinstance(optimizer, LBFGS):
            if self._decision.action in ("stop", "skip"):
                self.stop(self._decision)
        else:
            self._begin_step(optimizer)
        return result

    def _begin_step(self, optimizer: Optimizer) -> None:
        """Read the decision; count the step at the first optimizer after a synchronised backward. No collective."""
        if self._begins_a_step(optimizer):
            self._begin_update()
        self._stepped.add(id(optimizer))
        if self._owed.action == "stop":
            self.stop(self._owed)
        if self._decision.action == "stop":
            self.stop(self._decision)
        if self._decision.action == "skip":
            if not self._guard.can_skip(optimizer):
                self.stop(self._decision)
            self._guard.take(optimizer)
        else:
            self._obey_the_device(optimizer)

    def _obey_the_device(self, optimizer: Optimizer) -> None:
        """Keep a step out whose numbers nobody has read yet, where the device says so."""
        flag = self._flag
        late = flag is not None
        way = way_of(late=late, fused=late and is_fused(optimizer), first_step=late and is_first_step(optimizer))
        if flag is None or way == "at_once":
            return
        if way == "on_device":
            self._guard.hold(optimizer, flag)
            return
        if self._kept_out is None:
            self._kept_out = bool(flag)  # the one host read of such a step
        if self._kept_out:
            self._guard.take(optimizer)

    def _begins_a_step(self, optimizer: Optimizer) -> bool:
        """Tell whether a gradient was made since the last count.

        In a job of one rank without ``loss_fn`` no backward is seen: there an optimizer that steps again begins one.
        """
        if self._local is not None and self._recorder is None:
            return not self._stepped or id(optimizer) in self._stepped
        return self._pending

    def _begin_update(self) -> None:
        """A new step's update begins."""
        self._stepped.clear()
        if self._local is not None:
            self._settle()
            self._decision = self._guarded(self._inspect_locally, PROCEED)
        self._flag, self._kept_out = None if self._late is None else self._late.take_flag(), None
        self._pending = False
        self._micro = 0
        self.step += 1
        self._guarded(lambda: self.inspector.review.before_update(self.step), None)

    def _inspect_locally(self) -> Decision:
        assert self._local is not None
        step = self.step + 1
        with self.inspector.spending.on("every_step"):
            if self._late is None:
                view = self._local.view(self._loss, step)
            elif self._late.keep(sent := self._local.send(self._loss, step)):
                return PROCEED
            else:
                view = sent.view()
        return self.inspector.after_backward(view, step, audit=True)

    def _after_step(self, number: int, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._guard.restore()
        if number or self._closed or self._makes_state:
            return
        self.injector.after_update(self.step, self.module, optimizer)
        self._guarded(self._note_step, None)

    def _note_step(self) -> None:
        seconds = self._pace.step()
        self.inspector.spending.step(seconds)
        self.metrics.step(self.step, seconds, self._deadline())
        self.session.pusher.step()
        if self.world.rank == 0:
            self._tell_progress()

    def _tell_progress(self) -> None:
        """Journal how far the run is, where it is time."""
        share = self.inspector.cadences.share()
        if not self._pace.tells(share_known=share is not None):
            return
        facts = {
            "step": self.step,
            "step_seconds": round(self._pace.mean_seconds, 4),
            "passed": self.inspector.judge.passed,
            **self.inspector.spread,
        }
        if share is not None:
            facts["check_share"] = round(share, 5)
        self.publisher.progress(facts, self.step)

    def _deadline(self) -> float:
        """Return the time by which the next step must have ended."""
        return time.time() + self._pace.allowance()

    def _count_scaled_steps(self, scaler: Any) -> None:
        """Count a step that the loss scaler skips: it reaches no optimizer hook."""
        original = scaler.step

        def step(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            before = self.step
            result = original(optimizer, *args, **kwargs)
            if self.step == before and optimizer is self.optimizers[0]:
                self.start()
                self._begin_update()
            return result

        scaler.step = step

    # --- never worse -------------------------------------------------------------------------------------------------

    def _guarded(self, action: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return action()
        except IntegrityError:
            raise
        except Exception as error:
            self._failed(error)
            return otherwise

    def _not_compiled(self, error: Exception) -> None:
        self.metrics.error("check")
        first = str(error).partition("\n")[0]
        warn(f"checks run without compilation ({type(error).__name__}: {first}). The results are the same.")

    def _failed(self, error: Exception) -> None:
        self.metrics.error("check")
        warn(f"a check could not run ({type(error).__name__}: {error}). Training goes on.")
