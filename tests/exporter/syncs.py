"""Count the calls that read a number of a tensor: on a GPU each makes the host wait for all that it has asked for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lastgood.late import LateReading
from lastgood.readback import Here

NAMES = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__", "nonzero")
OPERATORS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal")


class _Operators(TorchDispatchMode):
    """See the same in what torch itself calls, in the thread that is watched."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name().split(".")[0] in OPERATORS:
            self.seen.append(f"{func.name()} in {_where()}")
        return func(*args, **(kwargs or {}))


@contextmanager
def counted() -> Iterator[list[str]]:
    """List what is called, of Python methods in every thread, and where. Numbers that have arrived may be read.

    A step that is not kept for later is read in itself, and counts as a read.
    """
    seen: list[str] = []
    arrived = threading.local()
    originals = {name: getattr(Tensor, name) for name in NAMES}
    numbers, keep = Here.numbers, LateReading.keep

    def watched(name: str) -> Any:
        def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            if not getattr(arrived, "reading", False):
                seen.append(f"{name} in {_where()}")
            return originals[name](self, *args, **kwargs)

        return call

    def read(self: Here) -> list[float]:
        arrived.reading = True
        try:
            return numbers(self)
        finally:
            arrived.reading = False

    def kept(self: LateReading, sent: Any) -> bool:
        if not keep(self, sent):
            seen.append("at once in lastgood/late.py:keep")
            return False
        return True

    for name in NAMES:
        setattr(Tensor, name, watched(name))
    Here.numbers, LateReading.keep = read, kept  # type: ignore[method-assign]
    try:
        with _Operators(seen):
            yield seen
    finally:
        Here.numbers, LateReading.keep = numbers, keep  # type: ignore[method-assign]
        for name, original in originals.items():
            setattr(Tensor, name, original)


def _where() -> str:
    """Name the innermost frame of lastgood's, else of the job's."""
    frame = sys._getframe(2)
    last = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if "/lastgood/" in path:
            return f"lastgood/{path.rsplit('/', 1)[1]}:{frame.f_code.co_name}"
        last = last or f"{path.rsplit('/', 1)[1]}:{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return last


def of_lastgood(seen: list[str]) -> list[str]:
    """Return the calls that come from lastgood."""
    return [call for call in seen if " in lastgood/" in call]
