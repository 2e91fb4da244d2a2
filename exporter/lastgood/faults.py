"""Inject faults into real tensors, with the truth in the journal, so that detection is measured and not claimed.

::

    fault = fault_named("gradient", rank=3, step=67)
    injector = Injector(fault, rank=dist.get_rank())
    injector.wrap(model.blocks[0])  # only the site "gradient" needs a layer
    monitor = lastgood.watch(model, optimizer, injector=injector, ...)
    injector.arm()

Nothing in lastgood arms an injector, and no setting or environment variable does. A fault belongs to a device; the
caller maps it to the rank that the device has in this attempt. A *once*-fault disarms itself when it fires, so that a
replay right after it is clean; a *permanent* one acts from its step on, also in that device's own replays.

Sites, in the order of a step:

- ``batch``: every target of the batch is ignored, so that the loss is 0/0: a fault of data, not of hardware
- ``gradient``: the gradient that enters a layer's backward (:meth:`Injector.wrap`), as a wrong kernel would leave it
- ``bucket``: a local gradient bucket after lastgood's first projection, as a wrong copy or link would
- ``reduce-all``, ``reduce-one``: the reduced bucket on all ranks alike, or on one
- ``weight``, ``optimizer``: one tensor after the update of the step, as a bit flip in memory would

Not covered: sharded parameters, and layers inside ``torch.compile`` regions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from lastgood.corruption import corrupt_, without_targets
from lastgood.errors import ConfigError
from lastgood.events import InjectionData
from lastgood.fingerprint import canonical_name
from lastgood.injection_points import JournalWrite

SITES: Final = ("batch", "gradient", "bucket", "reduce-all", "reduce-one", "weight", "optimizer")
KINDS: Final = ("bit", "scale", "nan", "inf")
WARP: Final = 32
"""Neighbouring values that a fault at ``gradient`` hits: a broken unit computes many elements."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Raises ConfigError when it cannot exist."""

    site: str
    kind: str
    rank: int
    """Global rank, in this attempt, of the device that has the fault; ``reduce-all`` ignores it."""
    step: int
    permanent: bool = False
    seed: int = 0
    """Chooses tensor, element and bit."""
    bit: int | None = None
    """For "bit": 0 is the lowest; None takes one of the upper half of the mantissa."""
    factor: float = 10.0
    """For "scale": 0.40 is read as 4.00."""
    bucket: int = 0
    """Index of the bucket for ``bucket`` and ``reduce-...``."""

    def __post_init__(self) -> None:
        _one_of("fault site", self.site, SITES)
        _one_of("fault kind", self.kind, KINDS)
        if self.site == "batch" and self.kind != "nan":
            raise ConfigError(f"fault kind {self.kind!r} at the site 'batch': only 'nan' exists there; choose it")
        if not math.isfinite(self.factor) or self.factor == 1:
            raise ConfigError(f"fault factor {self.factor}: it must be finite and not 1, or nothing is wrong")
        if self.bit is not None and self.bit < 0:
            raise ConfigError(f"fault bit {self.bit}: bits count from 0, the lowest; choose one from 0")
        if self.rank < 0 or self.step < 1:
            raise ConfigError(f"fault at rank {self.rank}, step {self.step}: ranks count from 0 and steps from 1")

    def check_reach(self, *, world_size: int, steps: int) -> None:
        """Raise ConfigError when the job has no such rank or step, so that the fault would never happen."""
        if self.rank >= world_size:
            raise ConfigError(f"fault rank {self.rank}: the job has ranks 0 to {world_size - 1}; choose one of them")
        if self.step > steps:
            raise ConfigError(f"fault step {self.step}: the run has steps 1 to {steps}; choose one of them")


NAMED: Final[Mapping[str, tuple[str, str, bool]]] = {
    "gradient": ("gradient", "scale", True),
    "nan": ("gradient", "nan", False),
    "reduce-all": ("reduce-all", "scale", False),
    "reduce-one": ("reduce-one", "scale", False),
    "weight": ("weight", "bit", False),
    "optimizer": ("optimizer", "bit", False),
    "data": ("batch", "nan", False),
}
"""The demo's faults: name -> (site, kind, permanent)."""


def fault_named(name: str, *, rank: int, step: int, seed: int = 0) -> Fault:
    """Return one of the demo's faults. Raises ConfigError for another name."""
    _one_of("fault", name, tuple(NAMED))
    site, kind, permanent = NAMED[name]
    return Fault(site, kind, rank, step, permanent=permanent, seed=seed)


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"unknown {what} {value!r}: choose one of {', '.join(allowed)}")


class Injector:
    """Corrupt real tensors at the points of :class:`lastgood.injection_points.InjectionPoints`, once it is armed."""

    def __init__(self, fault: Fault, rank: int, journal_write: JournalWrite | None = None) -> None:
        self.fault = fault
        self.rank = rank
        self.journal_write = journal_write
        self.injections: list[InjectionData] = []
        self._armed = False
        self._step = 0

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

    def wrap(self, module: nn.Module) -> RemovableHandle:
        """Put the site ``gradient`` behind a layer: identity in its forward, wrong values in its backward."""
        return module.register_forward_hook(lambda _module, _inputs, output: _behind(output, self))

    def on_step(self, step: int) -> None:
        """Remember the step for the backward, which knows none."""
        self._step = step

    def batch(self, step: int, batch: Any) -> Any:
        """Return the batch, or a copy without targets."""
        if not self._is_due("batch", step):
            return batch
        wrong = without_targets(batch)
        self._happened(step, "targets", "every target ignored or not a number")
        return wrong

    def bucket(self, index: int, tensor: Tensor, step: int) -> None:
        """Corrupt one local gradient bucket."""
        if index == self.fault.bucket and self._is_due("bucket", step):
            self._corrupt(step, f"bucket {index}", tensor)

    def reduced(self, index: int, tensor: Tensor, step: int, rank: int) -> None:
        """Corrupt one reduced bucket: on every rank alike, or on the rank of the fault."""
        if index == self.fault.bucket and (self._is_due("reduce-all", step) or self._is_due("reduce-one", step)):
            self._corrupt(step, f"bucket {index}", tensor)

    def after_update(self, step: int, model: nn.Module, optimizer: Optimizer) -> None:
        """Corrupt one weight or one state tensor of the optimizer."""
        if self._is_due("weight", step):
            self._corrupt_one_of(step, list(_weights(model)))
        elif self._is_due("optimizer", step):
            self._corrupt_one_of(step, list(_states(model, optimizer)))

    def corrupt_gradient(self, gradient: Tensor) -> Tensor:
        """Return the gradient, or a corrupted copy. Called in the backward of a wrapped layer."""
        if not self._is_due("gradient", self._step):
            return gradient
        wrong = gradient.clone()
        self._corrupt(self._step, "gradient of a layer's output", wrong, width=WARP)
        return wrong

    def _is_due(self, site: str, step: int) -> bool:
        fault = self.fault
        here = fault.site == site and (site == "reduce-all" or fault.rank == self.rank)
        return self._armed and here and (step >= fault.step if fault.permanent else step == fault.step)

    def _corrupt(self, step: int, name: str, tensor: Tensor, width: int = 1) -> bool:
        f = self.fault
        detail = corrupt_(tensor, f.kind, seed=f.seed, width=width, bit=f.bit, factor=f.factor)
        if detail is not None:
            self._happened(step, name, detail)
        return detail is not None

    def _corrupt_one_of(self, step: int, named: list[tuple[str, Tensor]]) -> None:
        """Corrupt the first tensor, in a seeded order, that has something to corrupt (biases may be all zero)."""
        random.Random(f"tensor {self.fault.seed}").shuffle(named)
        any(self._corrupt(step, name, tensor) for name, tensor in named)

    def _happened(self, step: int, name: str, detail: str) -> None:
        """Write the ground truth; disarm a fault that happens once."""
        f = self.fault
        self._armed = f.permanent
        data = InjectionData(
            site=f.site, fault=f.kind, step=step, rank=self.rank, tensor=name, detail=detail, permanent=f.permanent
        )
        self.injections.append(data)
        if self.journal_write is not None:
            self.journal_write("injection", data, step=step)


class Corrupt(torch.autograd.Function):
    """Pass a layer's output on; in the backward let the injector have the gradient."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, injector: Injector) -> Tensor:
        """Return the output itself, as another tensor."""
        ctx.corrupt = injector.corrupt_gradient
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient, corrupted when the fault is due."""
        corrupt: Callable[[Tensor], Tensor] = ctx.corrupt
        return corrupt(gradients[0]), None


def _behind(output: Any, injector: Injector) -> Any:
    """Apply :class:`Corrupt` to a layer's output, or to the first tensor of several that has a gradient."""
    if isinstance(output, Tensor):
        return Corrupt.apply(output, injector) if output.requires_grad else output  # type: ignore[no-untyped-call]
    if not isinstance(output, (tuple, list)):
        return output
    items = list(output)
    place = next((i for i, item in enumerate(items) if isinstance(item, Tensor) and item.requires_grad), None)
    if place is not None:
        items[place] = _behind(items[place], injector)
    return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in model.named_parameters():
        yield canonical_name(name), parameter


def _states(model: nn.Module, optimizer: Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Yield the optimizer's state tensors that have a value per weight (not its step counts)."""
    for name, parameter in _weights(model):
        for key, state in optimizer.state.get(parameter, {}).items():
            if isinstance(state, Tensor) and state.shape == parameter.shape and state.dim():
                yield f"{name}.{key}", state
