"""Bring the numbers of a step from the device to the host, at once or a step late.

On a CPU they are there. On a GPU reading them would make the host wait for everything that it has asked for so far, in
every step. So they are copied to pinned memory on a stream of their own, and read when the next backward has ended:
every rank at the same place, since what they say may call for a collective. That wait is for the step before, so it
only holds a host back that is a whole step ahead of its GPU.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Pending(Protocol):
    """Numbers on their way."""

    def numbers(self) -> list[float]:
        """Return them; waits for them where they have not arrived."""


class Readback(Protocol):
    """A way to the host. ``late``: the numbers of a step are read when the next backward has ended."""

    late: bool

    def send(self, numbers: Tensor) -> Pending:
        """Start the way of a float64 vector."""


class Here:
    """Numbers that the host can read: of a CPU, or by waiting for the device."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers

    def numbers(self) -> list[float]:
        """Read them."""
        out: list[float] = self._numbers.tolist()
        return out


class Exchanged(Here):
    """Numbers of a CPU that are on their way between the ranks; ``work``: the collective, None where there is none."""

    def __init__(self, numbers: Tensor, work: Any) -> None:
        super().__init__(numbers)
        self._work = work

    def numbers(self) -> list[float]:
        """Wait for the other ranks, and read them."""
        if self._work is not None:
            self._work.wait()
        return super().numbers()


class AtOnce:
    """Read in the step itself."""

    late = False

    def send(self, numbers: Tensor) -> Here:
        """Hand the numbers out."""
        return Here(numbers)


class LateOnHost:
    """Read a step late although the numbers are here: how the late decisions are tested without a GPU."""

    late = True

    def send(self, numbers: Tensor) -> Here:
        """Copy the numbers, as a device does."""
        return Here(numbers.clone())


class OverStream:
    """Copy to pinned memory on a stream of its own, and read a step late."""

    late = True

    def __init__(self, device: torch.device) -> None:
        cuda: Any = torch.cuda  # untyped in torch
        self._cuda, self._stream = cuda, cuda.Stream(device)

    def send(self, numbers: Tensor) -> _Copied:
        """Start the copy once the device has made the numbers."""
        self._stream.wait_stream(self._cuda.current_stream(numbers.device))
        with self._cuda.stream(self._stream):
            host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            host.copy_(numbers, non_blocking=True)
            done = self._cuda.Event()
            done.record(self._stream)
        numbers.record_stream(self._stream)  # its memory is not given away before the copy has read it
        return _Copied(host, done)


class _Copied:
    """A copy on a stream."""

    def __init__(self, host: Tensor, done: Any) -> None:
        self._host, self._done = host, done

    def numbers(self) -> list[float]:
        """Wait for the copy alone, and read it."""
        self._done.synchronize()
        out: list[float] = self._host.tolist()
        return out


def readback_for(device: torch.device) -> Readback:
    """Return how the numbers of a step on this device are read."""
    return OverStream(device) if device.type == "cuda" else AtOnce()
