"""Remember what a micro-batch's forward and backward depended on, so that another rank can run them again.

Kept for every micro-batch of the step in progress: a reference to the batch and the state of the random number
generators. Buffers (a copy) and the digest of the actual gradient are kept only on audit steps. The upstream gradient
(accumulation factor, loss scale) is caught by a hook on the loss.

Everything that enters the backward must be inside ``loss_fn``. Not covered: a batch that is changed in place after
``monitor.loss``, and state kept in Python objects outside module, buffers and generators.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lastgood.fingerprint import fingerprint
from lastgood.wrappers import inside_ddp, is_compiled, is_compiled_around


@dataclass(slots=True)
class Randomness:
    """The state of every generator that a forward pass may draw from."""

    cpu: Tensor
    device: Tensor | None
    python: tuple[Any, ...]
    numpy: Any

    @classmethod
    def capture(cls, device: torch.device) -> Randomness:
        """Copy the generators' state (about 10 kB; no device synchronisation)."""
        numpy = sys.modules.get("numpy")
        return cls(
            cpu=torch.get_rng_state(),
            device=torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
            python=random.getstate(),
            numpy=numpy.random.get_state() if numpy is not None else None,
        )

    def restore(self, device: torch.device) -> None:
        """Put the generators into this state."""
        torch.set_rng_state(self.cpu)
        if self.device is not None:
            torch.cuda.set_rng_state(self.device, device)
        random.setstate(self.python)
        if self.numpy is not None and "numpy" in sys.modules:
            sys.modules["numpy"].random.set_state(self.numpy)


@dataclass(frozen=True, slots=True)
class Autocast:
    """The autocast state of one device type."""

    device_type: str
    enabled: bool
    dtype: torch.dtype
    cache: bool

    @classmethod
    def capture(cls, device: torch.device) -> Autocast:
        """Read the state in force."""
        kind = device.type
        return cls(
            kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), torch.is_autocast_cache_enabled()
        )

    def context(self) -> torch.amp.autocast_mode.autocast:
        """Return a context in which it is in force again."""
        return torch.autocast(self.device_type, dtype=self.dtype, enabled=self.enabled, cache_enabled=self.cache)


@dataclass(slots=True)
class MicroBatch:
    """One recorded forward: what goes in, and what came out.

    ``snapshot``: the serialised batch as it was before the forward, only on audit steps; None when it cannot be
    serialised. ``versions``: torch's write counters of the batch's tensors before the forward. ``training``: the mode
    of every module.
    ``digests``: parameter name -> fingerprint (int64 scalar tensor) of this micro-batch's own local gradient, only on
    audit steps. ``loss`` is detached.
    """

    step: int
    index: int
    batch: Any
    randomness: Randomness
    autocast: Autocast
    buffers: dict[str, Tensor] | None = None
    loss: Tensor | None = None
    upstream: Tensor | None = None
    digests: dict[str, Tensor] = field(default_factory=dict)
    broken: bool = False
    snapshot: bytes | None = None
    versions: tuple[int, ...] = ()
    training: tuple[bool, ...] = ()

    @property
    def changed(self) -> bool:
        """Tell whether a tensor of the batch was written in place since (by ``loss_fn`` or after it)."""
        return versions_of(self.batch) != self.versions


class Recorder:
    """Keep the micro-batches of the step in progress, and after it the last one (for probes at saves)."""

    def __init__(
        self,
        module: nn.Module,
        loss_fn: Callable[[nn.Module, Any], Any],
        device: torch.device,
        model: nn.Module | None = None,
    ) -> None:
        self.module = module
        self.entry = inside_ddp(module if model is None else model)
        """What a replay calls: the module, compiled where the user compiled it."""
        self.repeats_itself = model is None or not is_compiled_around(model)
        """Whether a replay runs the very code of the step."""
        self.loss_fn = loss_fn
        self.device = device
        self.digest: Callable[[Tensor, str], Tensor] = fingerprint
        """What is kept of a gradient or a loss, from (tensor, name): an int64 scalar tensor."""
        self.late_leaves: Callable[[], Iterable[tuple[str, Tensor]]] | None = None
        """Where the forward makes what has the gradients (gathered weights): names and tensors, after a forward."""
        self.current: list[MicroBatch] = []
        self.keeps_the_step_before = False
        """Whether the step before is kept as well, because it is judged only when the next backward has ended."""
        self._before: list[MicroBatch] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._buffer_hook: torch.utils.hooks.RemovableHandle | None = None

    @property
    def compiled(self) -> bool:
        """Tell whether any code that a replay runs may be compiled."""
        return is_compiled(self.entry, self.loss_fn)

    @property
    def order(self) -> list[str]:
        """Return the names of the trained parameters in the module's order, which is about that of the forward."""
        return [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]

    @property
    def last(self) -> MicroBatch | None:
        """Return the newest micro-batch."""
        return self.current[-1] if self.current else None

    def run(self, model: nn.Module, batch: Any, step: int, audit: bool) -> Any:
        """Compute ``loss_fn(model, batch)`` and remember it. ``audit``: digest this micro-batch's gradient too."""
        if self.current and self.current[-1].step != step:
            self._before = self.current if self.keeps_the_step_before else []
            self.current = []
        self._remove_hooks()
        micro = MicroBatch(
            step,
            len(self.current),
            batch,
            Randomness.capture(self.device),
            Autocast.capture(self.device),
            versions=versions_of(batch),
            training=tuple(m.training for m in self.module.modules()),
        )
        if audit:
            self._prepare_audit(micro)
        try:
            out = self.loss_fn(model, batch)
        finally:
            self._stop_watching_buffers()
        loss = loss_of(out)
        micro.loss = loss.detach()
        if audit and self.late_leaves is not None:
            self._digest_into(micro, self.late_leaves())
        if loss.requires_grad:
            loss.register_hook(partial(_keep_upstream, micro))  # type: ignore[no-untyped-call]
        self.current.append(micro)
        return out

    def of(self, step: int) -> list[MicroBatch]:
        """Return the micro-batches of the step in progress, or of the one before it where that is kept."""
        return self._before if self._before and self._before[-1].step == step else self.current

    def buffers(self) -> dict[str, Tensor]:
        """Copy the module's buffers."""
        return {name: buffer.detach().clone() for name, buffer in self.module.named_buffers()}

    def _prepare_audit(self, micro: MicroBatch) -> None:
        """Keep the batch and the buffers as the forward finds them, and digest the gradient that it gives.

        The wrapper may overwrite buffers with another rank's just before the inner module runs, so they are copied
        there; before that for a ``loss_fn`` that never calls the module itself.
        """
        with suppress(Exception):  # what cannot be pickled is said when the round is packed
            micro.snapshot = serialise(micro.batch)
        micro.buffers = self.buffers()

        def first_call(*_: Any) -> None:
            self._stop_watching_buffers()
            micro.buffers = self.buffers()

        self._buffer_hook = self.module.register_forward_pre_hook(first_call)
        if self.late_leaves is None:
            self._digest_into(micro, self.module.named_parameters())

    def backward_ended(self) -> None:
        """Digest no gradient any more: what runs now is a replay, whose gradients belong to other batches."""
        self._remove_hooks()

    def _stop_watching_buffers(self) -> None:
        if self._buffer_hook is not None:
            self._buffer_hook.remove()
            self._buffer_hook = None

    def _digest_into(self, micro: MicroBatch, parameters: Iterable[tuple[str, Tensor]]) -> None:
        for name, parameter in parameters:
            if parameter.requires_grad:
                hook = partial(_digest_gradient, self.digest, micro, name)
                self._hooks.append(parameter.register_hook(hook))  # type: ignore[no-untyped-call]

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def versions_of(batch: Any) -> tuple[int, ...]:
    """Return the write counters of the tensors in a batch (nested containers; not inside other objects)."""
    return tuple(leaf._version for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and not leaf.is_inference())


def serialise(value: Any) -> bytes:
    """Serialise for another rank of this job. Raises what pickling raises."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def loss_of(out: Any) -> Tensor:
    """Return the loss of what ``loss_fn`` returned: itself, or the first of a tuple."""
    loss = out[0] if isinstance(out, tuple) else out
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise TypeError(f"loss_fn returned {type(loss).__name__}: expected a scalar tensor, or a tuple that starts so")
    return loss


@contextmanager
def untouched(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Run something that draws random numbers, writes buffers and changes modes, and leave no trace of it."""
    randomness = Randomness.capture(device)
    buffers = {name: b.detach().clone() for name, b in module.named_buffers()}
    modes = tuple(m.training for m in module.modules())
    try:
        yield
    finally:
        set_modes(module, modes)
        set_buffers(module, buffers)
        randomness.restore(device)


def set_modes(module: nn.Module, training: Sequence[bool]) -> None:
    """Put every module into its recorded mode, one by one: ``train()`` would change its children too."""
    for part, mode in zip(module.modules(), training, strict=False):
        part.training = mode


class NoCommunication(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raise at a collective before it communicates: other ranks may be elsewhere while a batch is replayed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let everything through but what talks to other ranks."""
        if func.namespace in ("c10d", "_c10d_functional"):
            raise CommunicatesError
        return func(*args, **(kwargs or {}))


class CommunicatesError(RuntimeError):
    """``loss_fn`` talks to other ranks, so one rank alone cannot run it again."""


def set_buffers(module: nn.Module, values: dict[str, Tensor]) -> None:
    """Copy values into the module's buffers of the same name."""
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if name in values:
                buffer.copy_(values[name])


def _keep_upstream(micro: MicroBatch, grad: Tensor) -> None:
    micro.upstream = grad.detach().clone()


def _digest_gradient(digest: Callable[[Tensor, str], Tensor], micro: MicroBatch, name: str, grad: Tensor) -> None:
    """Runs inside the user's backward: what cannot be digested leaves the audit without a digest, and *not run*."""
    if grad.is_sparse or micro.broken:
        return
    try:
        micro.digests[name] = digest(grad.detach(), name)
    except Exception:
        micro.broken = True
        micro.digests.clear()
