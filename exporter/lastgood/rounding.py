"""Say what rounding alone may make of a loss or a norm: by the coarsest type that a run computes in.

The type of the weights does not tell: autocast may begin inside ``loss_fn``, and a GPU may multiply float32 in TF32. So
the types are read off what a run computes. Not covered: a compiled model hides its types, and counts as bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lastgood.projection import tolerance
from lastgood.recorder import Recorder

LEAST: Final = 1e-4
"""A number may move so far although a few repeats did not show it: float32 sums in other orders mostly agree."""


class _Types(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Note the floating-point types of whatever is computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let everything through."""
        out = func(*args, **(kwargs or {}))
        self.seen |= {leaf.dtype.to_real() for leaf in tree_leaves(out) if isinstance(leaf, Tensor)}
        return out


@contextmanager
def types_of(recorder: Recorder) -> Iterator[set[torch.dtype]]:
    """Collect the types that runs of the recorder's model compute in."""
    if recorder.compiled:
        yield {torch.bfloat16}
        return
    tf32 = recorder.device.type == "cuda" and (torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)
    with _Types() as mode:
        mode.seen |= {torch.float16} if tf32 else set()  # as many bits as TF32 has
        yield mode.seen


def rounding(types: Iterable[torch.dtype]) -> float:
    """Return how far rounding in the coarsest of the types may move a number, as a share of it; at least 1e-4."""
    return max([LEAST, *(tolerance(t) for t in types if t.is_floating_point)])
