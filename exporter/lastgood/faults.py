"""Inject faults into real tensors, with the truth in the journal, so that detection is measured and not claimed.

::

    fault = fault_named("gradient", rank=3, step=67)
    injector = Injector(fault, rank=dist.get_rank())
    injector.wrap(model.blocks[0])  # only the sites "activation", "gradient" and "weight-gradient" need a layer
    monitor = lastgood.watch(model, optimizer, injector=injector, ...)
    injector.arm()

Nothing in lastgood arms an injector, and no setting or environment variable does. A fault belongs to a device; the
caller maps it to the rank that the device has in this attempt. A *transient* fault disarms itself when it fires, so
that a replay right after it is clean; a *permanent* one acts from its step on, also in that device's own replays; an
*intermittent* one is drawn afresh at each execution.

Sites, in the order of a step:

- ``batch``: every target of the batch is ignored, so that the loss is 0/0: a fault of data, not of hardware
- ``activation``: the output of a layer's forward (:meth:`Injector.wrap`)
- ``gradient``: the gradient that enters a layer's backward, as a wrong kernel would leave it
- ``weight-gradient``: the gradient of one of a layer's parameters as autograd made it, before it is in a bucket;
  under ``fully_shard`` that of the gathered parameter, before its reduce-scatter
- ``bucket``: a local gradient bucket after lastgood's first projection, as a wrong copy or link would
- ``reduce-all``, ``reduce-one``: the reduced bucket on all ranks alike, or on one
- ``weight``, ``optimizer``: one tensor after the update of the step, as a bit flip in memory would
- ``at-rest``: a weight or a moment of the optimizer in the middle of a step, while nobody writes

A file that rots on disk has no place in a step: :func:`lastgood.rot.rot_`.

The journaled truth says how much changed, so that a score can tell what lies below a tolerance. No verdict reads it.

Not covered: layers inside ``torch.compile`` regions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lastgood.corruption import Change, corrupt_, without_targets
from lastgood.events import InjectionData
from lastgood.fault_layers import AtParameter, Corrupted, Removable, stand_behind
from lastgood.fault_specs import KINDS, NAMED, SITES, Fault, fault_named
from lastgood.findings import number
from lastgood.fingerprint import canonical_name
from lastgood.fsdp_groups import named_parameters
from lastgood.injection_points import JournalWrite
from lastgood.projection import project_only
from lastgood.sharded import local, locally

__all__ = ["KINDS", "NAMED", "SITES", "WARP", "Fault", "Injector", "fault_named"]

WARP: Final = 32
"""Neighbouring values that a fault in a layer hits: a broken unit computes many elements."""


class Injector:
    """Corrupt real tensors at the points of :class:`lastgood.injection_points.InjectionPoints`, once it is armed."""

    def __init__(self, fault: Fault, rank: int, journal_write: JournalWrite | None = None) -> None:
        self.fault = fault
        self.rank = rank
        self.journal_write = journal_write
        self.injections: list[InjectionData] = []
        self._armed = False
        self._step = 0
        self._trains = False  # a batch of the training was given out and the layer has not run since
        self._drawn = random.Random(f"chance {fault.seed}")

    @property
    def armed(self) -> bool:
        """Whether the fault can (still) happen."""
        return self._armed

    def arm(self) -> None:
        """Let the fault happen from now on."""
        self._armed = True

    def disarm(self) -> None:
        """Let nothing happen any more."""
        self._armed = False

    def journal_to(self, write: JournalWrite) -> None:
        """Write every injection there, at the moment of the corruption; a journal given at the start stays."""
        self.journal_write = self.journal_write or write

    def wrap(self, module: nn.Module) -> Removable:
        """Put the fault into a layer, before training begins: into its forward, its backward or a parameter."""
        if self.fault.site == "weight-gradient":
            return AtParameter(module, self.fault.seed, self._weight_gradient)
        return stand_behind(module, self._hands)

    def on_step(self, step: int) -> None:
        """Remember the step for the layers, which know none."""
        self._step = step

    def resting(self, step: int, model: nn.Module, optimizer: Optimizer) -> None:
        """Corrupt a weight or a moment past torch's write counter, which a flip in memory does not move either."""
        if self._is_due("at-rest", step):
            cuda: Any = torch.cuda  # untyped in torch
            if cuda.is_initialized():
                cuda.synchronize()  # the first look runs beside the training, and comes before
            named = [*_weights(model), *_states(model, optimizer, self.fault.state)]
            self._corrupt_one_of(step, [(name, tensor.data) for name, tensor in named])

    def batch(self, step: int, batch: Any) -> Any:
        """Return the batch, or a copy without targets."""
        self._trains = True
        if not self._is_due("batch", step):
            return batch
        wrong = without_targets(batch)
        self._happened(step, "targets", "every target ignored or not a number", replay=False)
        return wrong

    def bucket(self, index: int, tensor: Tensor, step: int) -> None:
        """Corrupt one local gradient bucket."""
        if index == self.fault.bucket and self._is_due("bucket", step):
            self._corrupt_bucket(step, index, tensor)

    def reduced(self, index: int, tensor: Tensor, step: int, rank: int) -> None:
        """Corrupt one reduced bucket: on every rank alike, or on the rank of the fault."""
        if index == self.fault.bucket and (self._is_due("reduce-all", step) or self._is_due("reduce-one", step)):
            self._corrupt_bucket(step, index, tensor)

    def after_update(self, step: int, model: nn.Module, optimizer: Optimizer) -> None:
        """Corrupt one weight or one state tensor of the optimizer."""
        if self._is_due("weight", step):
            self._corrupt_one_of(step, list(_weights(model)))
        elif self._is_due("optimizer", step):
            self._corrupt_one_of(step, list(_states(model, optimizer, self.fault.state)))

    # --- in a layer ---------------------------------------------------------------------------------------------------

    def _hands(self) -> tuple[Corrupted, Corrupted]:
        """Return what a forward passes the layer's output and its gradient through; a replay's know that they are."""
        replay, self._trains = not self._trains, False
        return (
            partial(self._copied, "activation", "output of a layer", replay),
            partial(self._copied, "gradient", "gradient of a layer's output", replay),
        )

    def _weight_gradient(self, name: str, gradient: Tensor) -> Tensor:
        replay, self._trains = not self._trains, False
        return self._copied("weight-gradient", f"gradient of the layer's {name}", replay, gradient)

    def _copied(self, site: str, name: str, replay: bool, tensor: Tensor) -> Tensor:
        """Return the tensor, or a corrupted copy of it when the fault is due."""
        if not self._is_due(site, self._step):
            return tensor
        wrong = tensor.clone()
        self._corrupt(self._step, name, local(wrong), width=WARP, replay=replay)
        return wrong

    # --- the corruption ----------------------------------------------------------------------------------------------

    def _is_due(self, site: str, step: int) -> bool:
        """Tell whether to corrupt now; an intermittent fault is drawn only where it could happen."""
        fault = self.fault
        if not self._armed or fault.site != site or (site != "reduce-all" and fault.rank != self.rank):
            return False
        if fault.when == "transient":
            return step == fault.step
        return step >= fault.step and (fault.permanent or self._drawn.random() < fault.chance)

    def _corrupt(self, step: int, name: str, tensor: Tensor, *, width: int = 1, replay: bool = False) -> bool:
        f = self.fault
        change = corrupt_(tensor, f.kind, seed=f.seed, width=width, bit=f.bit, factor=f.factor)
        if change is not None:
            self._happened(step, name, change.words, replay=replay, **_measured(change))
        return change is not None

    def _corrupt_bucket(self, step: int, index: int, tensor: Tensor) -> None:
        """Corrupt a bucket, and measure how much of it a projection shows: the signs may cancel several changes."""
        if not tensor.is_floating_point():
            return
        before = project_only(tensor, key=index)
        f = self.fault
        change = corrupt_(tensor, f.kind, seed=f.seed, bit=f.bit, factor=f.factor)
        if change is None:
            return
        shown = abs(float(project_only(tensor, key=index) - before))
        measured = _measured(change) | {"projected_difference": number(shown)}
        self._happened(step, f"bucket {index}", change.words, replay=False, **measured)

    def _corrupt_one_of(self, step: int, named: list[tuple[str, Tensor]]) -> None:
        """Corrupt the first tensor, in a seeded order, that has something to corrupt (biases may be all zero)."""
        random.Random(f"tensor {self.fault.seed}").shuffle(named)
        any(self._corrupt(step, name, tensor) for name, tensor in named)

    def _happened(self, step: int, name: str, detail: str, **truth: Any) -> None:
        """Write the ground truth; disarm a fault that happens once."""
        f = self.fault
        self._armed = f.when != "transient"
        data = InjectionData(
            site=f.site, fault=f.kind, step=step, rank=self.rank, tensor=name, detail=detail, permanent=f.permanent
        )
        if f.chance:
            data["chance"] = f.chance
        data.update(truth)  # type: ignore[typeddict-item]
        self.injections.append(data)
        if self.journal_write is not None:
            self.journal_write("injection", data, step=step)


def _measured(change: Change) -> dict[str, Any]:
    return {
        "values": change.values,
        "largest_difference": number(change.largest_difference),
        "largest_relative_difference": number(change.largest_relative_difference),
    }


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights; of a sharded one what this rank holds."""
    yield from locally((canonical_name(name), parameter) for name, parameter in named_parameters(model))


def _states(model: nn.Module, optimizer: Optimizer, wanted: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the optimizer's state tensors that have a value per weight (not its step counts); ``wanted``: its key."""
    for name, parameter in named_parameters(model):
        for key, state in optimizer.state.get(parameter, {}).items():
            if isinstance(state, Tensor) and state.shape == parameter.shape and state.dim() and wanted in ("", key):
                yield f"{canonical_name(name)}.{key}", local(state)
