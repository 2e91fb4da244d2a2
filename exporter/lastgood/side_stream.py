"""Run what only looks beside the training: on a GPU on a stream of its own, on a CPU in the call itself.

What waits for what is said in three places. :meth:`SideStream.apart`: what is enqueued inside runs after all that the
current stream had been given before, and beside what it is given afterwards. A reduce that begins inside waits for what
was read inside, and not for the rest of the backward. :meth:`SideStream.join`: what the current stream is given from
then on waits for all that was apart, so that no optimizer writes what is still being read.
:meth:`SideStream.made_here`: the same for numbers that are made on a stream of torch's own.

Memory follows the streams: numbers that were made on one of them and are read after a join are handed to it, so that
they are not given away before they have been read. What is only looked at (buckets, weights, optimizer state) outlives
the join.

Not covered: work that is captured into a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor


class Side(Protocol):
    """Where checks look at what the training goes on to use."""

    def apart(self) -> AbstractContextManager[None]:
        """Return a context whose work runs beside the training."""

    def made_here(self) -> None:
        """Say that numbers are being made on the current stream, which is not the one that reads them."""

    def join(self, numbers: Iterable[Tensor] = ()) -> None:
        """Let the current stream wait for all of it; ``numbers`` are what it reads then. The host waits for nothing."""


class InLine:
    """No stream: what is asked for has been done when the call returns."""

    def apart(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def made_here(self) -> None:
        """Do nothing."""

    def join(self, numbers: Iterable[Tensor] = ()) -> None:
        """Do nothing."""


class SideStream:
    """One stream of a device. ``cuda``: ``torch.cuda``, or what stands for it in a test."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._cuda, self._device, self._own = cuda, device, cuda.Stream(device)
        self._used: list[Any] = []  # streams for whose work nobody has waited since

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Run what is inside on the stream, after what the current one has been given so far."""
        self._own.wait_stream(self._cuda.current_stream(self._device))
        self._used.append(self._own)
        with self._cuda.stream(self._own):
            yield

    def made_here(self) -> None:
        """Remember the current stream for the next join."""
        self._used.append(self._cuda.current_stream(self._device))

    def join(self, numbers: Iterable[Tensor] = ()) -> None:
        """Let the current stream wait for the others that were used, and keep ``numbers`` until it has read them."""
        here = self._cuda.current_stream(self._device)
        used, self._used = self._used, []
        waited: list[Any] = [here]
        for stream in used:
            if stream not in waited:
                here.wait_stream(stream)
                waited.append(stream)
        for number in numbers:
            if number.device.type == self._device.type:
                number.record_stream(here)


def side_of(device: torch.device) -> Side:
    """Return where checks of a device look."""
    return SideStream(device) if device.type == "cuda" else InLine()
