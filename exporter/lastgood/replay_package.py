"""Run a recorded micro-batch once and fingerprint what comes of it: what both sides of a replay do alone.

Nothing here communicates (:mod:`lastgood.replay` does). ``.grad``, generators, buffers, weights and the wrapper's state
are afterwards exactly as before.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from lastgood.fingerprint import count_nonfinite, key_of
from lastgood.projection import numbers_of
from lastgood.recorder import (
    MicroBatch,
    NoCommunication,
    Recorder,
    loss_of,
    serialise,
    set_buffers,
    set_modes,
    untouched,
)

LOSS: Final = "loss"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a package: per-tensor fingerprints of the gradient and the loss, and whether it was finite."""

    names: tuple[str, ...]
    values: Tensor  # int64 [n]
    nonfinite: bool

    @property
    def total(self) -> int:
        """Return the fingerprint of the whole: the sum modulo 2^64, as int64."""
        return int(self.values.sum())

    @property
    def shape(self) -> int:
        """Return a number for the set of names: parameters that got a gradient."""
        return key_of("\0".join(self.names))


def recorded(micro: MicroBatch, recorder: Recorder) -> Outcome:
    """Return the digest that the hooks took of the gradient that really went into the step."""
    assert micro.loss is not None
    return outcome_of(dict(micro.digests), micro.loss, recorder, 0)


def pack(micros: Sequence[MicroBatch], recorder: Recorder) -> bytes:
    """Serialise micro-batches for another rank of this job. Raises what pickling raises.

    An audited micro-batch travels as it was before its forward; another one with the buffers of now, since ranks have
    buffers of their own and both sides must run under the same.
    """
    now = recorder.buffers() if any(m.buffers is None for m in micros) else {}
    return serialise(
        [
            (
                serialise(m.batch) if m.snapshot is None else m.snapshot,
                m.randomness,
                m.autocast,
                now if m.buffers is None else m.buffers,
                m.upstream,
                m.training,
            )
            for m in micros
        ]
    )


def run_package(blob: bytes, recorder: Recorder) -> Outcome:
    """Run micro-batches under this rank's weights; fingerprint the loss and the gradient of the first one.

    The gradient is computed with ``torch.autograd.grad`` through the inner module, so ``.grad`` and the wrapper's
    hooks never see it. Each parameter's is digested as soon as it is there, and freed: no second copy of the gradient.
    """
    # The bytes come from a rank of this very job over its own process group, as every object collective of
    # torch.distributed; nothing from outside the job is ever unpickled.
    micros = torch.load(io.BytesIO(blob), weights_only=False, map_location=recorder.device)
    outcomes = []
    with untouched(recorder.module, recorder.device), torch.enable_grad():
        for micro in micros:
            outcomes.append(_run_micro(micro, recorder))
    first = outcomes[0]
    return Outcome(first.names, first.values, any(o.nonfinite for o in outcomes))


def forward_again(
    micro: tuple[Any, ...], recorder: Recorder, guard: AbstractContextManager[Any]
) -> tuple[Tensor, Tensor | None]:
    """Run the forward of a packed micro-batch as it ran; return the loss and what its backward began with."""
    batch_bytes, randomness, autocast, buffers, upstream, training = micro
    batch = torch.load(io.BytesIO(batch_bytes), weights_only=False, map_location=recorder.device)
    set_modes(recorder.module, training)
    if buffers:
        set_buffers(recorder.module, buffers)
    randomness.cpu = randomness.cpu.cpu()
    if randomness.device is not None:
        randomness.device = randomness.device.cpu()
    randomness.restore(recorder.device)
    with autocast.context(), guard:
        return loss_of(recorder.loss_fn(recorder.entry, batch)), upstream


def _run_micro(micro: tuple[Any, ...], recorder: Recorder) -> Outcome:
    guard = nullcontext() if recorder.compiled else NoCommunication()  # type: ignore[no-untyped-call]
    loss, upstream = forward_again(micro, recorder, guard)
    rows, bad = _digest_backward(loss, upstream, recorder)
    return outcome_of(rows, loss.detach(), recorder, bad)


def _digest_backward(loss: Tensor, upstream: Tensor | None, recorder: Recorder) -> tuple[dict[str, Tensor], int]:
    """Run the backward; return the digest of every dense gradient, and how many values are not finite.

    Only what the parameters' hooks return is kept until the end, and ours, the last of them, returns a zero that has
    the gradient's shape and the memory of one element.
    """
    rows: dict[str, Tensor] = {}
    bad: list[Tensor] = []

    def digest(name: str, grad: Tensor) -> Tensor | None:
        bad.append(count_nonfinite(numbers_of(grad)))
        if grad.is_sparse:
            return None
        rows[name] = recorder.digest(grad.detach(), name)
        return grad.new_zeros(()).expand_as(grad)

    named = [(n, p) for n, p in recorder.module.named_parameters() if p.requires_grad]
    handles = [p.register_hook(partial(digest, n)) for n, p in named]  # type: ignore[no-untyped-call]
    try:
        torch.autograd.grad(
            loss, [p for _, p in named], grad_outputs=None if upstream is None else upstream.to(loss), allow_unused=True
        )
    finally:
        for handle in handles:
            handle.remove()
    return rows, int(torch.stack(bad).sum()) if bad else 0


def outcome_of(rows: dict[str, Tensor], loss: Tensor, recorder: Recorder, bad: int) -> Outcome:
    """Order the rows as the module's parameters, the loss last."""
    names = [name for name in recorder.order if name in rows]
    digests = [*(rows[name] for name in names), recorder.digest(loss, LOSS)]
    values = torch.stack([digest.to(recorder.device) for digest in digests]).cpu()
    return Outcome((*names, LOSS), values, bad + int(count_nonfinite(loss)) > 0)


def free_memory(error: BaseException) -> None:
    """Give back what a failed run held: the frames of the exception keep its tensors alive."""
    error.__traceback__ = None
    if isinstance(error, torch.OutOfMemoryError) and torch.cuda.is_available():
        torch.cuda.empty_cache()
