"""Talk to the other ranks: the few collectives that the checks need, over one process group.

A job of one rank has the same interface and communicates with nobody. Control traffic (sizes, digests, names) is small
and goes over the CPU: with a backend that only moves GPU tensors a second, gloo group is made for it at start, by all
ranks. The one all-reduce of every step stays on the group and the device that carry the gradients.

Not covered: groups that change while the job runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from lastgood.readback import Exchanged, Here, Pending

_USUAL_TIMEOUT: Final = timedelta(minutes=10)


class World:
    """The ranks of a job. ``rank`` and ``size`` count within ``group``."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group if group is not None else _default_group()
        self.rank = dist.get_rank(self.group) if self.group is not None else 0
        self.size = dist.get_world_size(self.group) if self.group is not None else 1
        self.control = self._control_group()

    def _control_group(self) -> dist.ProcessGroup | None:
        """Return a gloo group. Beside NCCL ("cpu:gloo,cuda:nccl") it is one of its own: saves use the other."""
        if self.group is None or dist.get_backend(self.group) == "gloo":
            return self.group
        ranks = dist.get_process_group_ranks(self.group)
        group: dist.ProcessGroup = dist.new_group(ranks, backend="gloo", timeout=timeout_of(self.group))
        return group

    def sum_(self, vector: Tensor) -> Tensor:
        """Sum ``vector`` over the ranks, in place, on its own device."""
        if self.group is not None and self.size > 1:
            dist.all_reduce(vector, group=self.group)
        return vector

    def max_(self, vector: Tensor) -> Tensor:
        """Take the elementwise maximum over the ranks, in place (a CPU tensor)."""
        if self.size > 1:
            dist.all_reduce(vector, op=dist.ReduceOp.MAX, group=self.control)
        return vector

    def max_later(self, vector: Tensor) -> Pending:
        """Begin to take the elementwise maximum over the ranks (a CPU tensor), to be read at a later place of all."""
        if self.size == 1:
            return Here(vector)
        work = dist.all_reduce(vector, op=dist.ReduceOp.MAX, group=self.control, async_op=True)
        return Exchanged(vector, work)

    def gather(self, vector: Tensor) -> Tensor:
        """Return [size, n] from every rank's ``vector`` [n] (a CPU tensor, same dtype and length everywhere)."""
        if self.size == 1:
            return vector.unsqueeze(0)
        out = [torch.empty_like(vector) for _ in range(self.size)]
        dist.all_gather(out, vector.contiguous(), group=self.control)
        return torch.stack(out)

    def gather_ints(self, values: Sequence[int]) -> list[list[int]]:
        """Return every rank's integers (int64, same length everywhere)."""
        rows: list[list[int]] = self.gather(torch.tensor(values, dtype=torch.int64)).tolist()
        return rows

    def gather_floats(self, values: Sequence[float]) -> list[list[float]]:
        """Return every rank's numbers (float64, same length everywhere)."""
        rows: list[list[float]] = self.gather(torch.tensor(values, dtype=torch.float64)).tolist()
        return rows

    def gather_bytes(self, blob: bytes) -> list[bytes]:
        """Return every rank's bytes: one all-gather of sizes, one of the padded bytes. For small things."""
        sizes = [size for (size,) in self.gather_ints([len(blob)])]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(blob)] = _bytes(blob)
        return [row[:size].numpy().tobytes() for row, size in zip(self.gather(padded), sizes, strict=True)]

    def gather_json(self, value: object) -> list[Any]:
        """Return every rank's plain data. JSON, not pickle: what arrives is data and nothing else."""
        return [json.loads(blob) for blob in self.gather_bytes(json.dumps(value).encode())]

    def broadcast_json(self, value: object, source: int = 0) -> Any:
        """Return the plain data that rank ``source`` gives."""
        if self.size == 1:
            return json.loads(json.dumps(value))
        data = _bytes(json.dumps(value).encode())
        size = torch.tensor([len(data)], dtype=torch.int64)
        dist.broadcast(size, group_src=source, group=self.control)
        if self.rank != source:
            data = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, group_src=source, group=self.control)
        return json.loads(data.numpy().tobytes())

    def exchange(self, blob: bytes, *, to: Sequence[int], senders: Sequence[int]) -> dict[int, bytes]:
        """Send ``blob`` to the ranks in ``to`` and return what the ``senders`` sent. Every rank calls it.

        Who talks to whom is known to everybody beforehand; only the sizes are gathered. Empty blobs do not travel.
        """
        sizes = [size for (size,) in self.gather_ints([len(blob)])]
        incoming = {peer: torch.empty(sizes[peer], dtype=torch.uint8) for peer in senders if sizes[peer]}
        outgoing = _bytes(blob)
        works = [dist.irecv(t, group_src=p, group=self.control) for p, t in incoming.items() if p != self.rank]
        works += [dist.isend(outgoing, group_dst=p, group=self.control) for p in to if p != self.rank and len(blob)]
        for work in works:
            if work is not None:
                work.wait()
        out = {peer: t.numpy().tobytes() for peer, t in incoming.items() if peer != self.rank}
        return out | ({self.rank: blob} if self.rank in to and self.rank in senders else {})

    def agree(self, ok: bool) -> list[int]:
        """Return the ranks that did not say ``ok``."""
        return [rank for rank, (said,) in enumerate(self.gather_ints([int(ok)])) if not said]

    def equal(self, digest: int) -> bool:
        """Tell whether every rank holds the same int64: the maximum of ``[d, ~d]`` gives maximum and minimum."""
        both = self.max_(torch.tensor([digest, ~digest], dtype=torch.int64)).tolist()
        return bool(both[0] == ~both[1])


def timeout_of(group: Any) -> timedelta:
    """Return how long the job's own collectives wait for a rank, so that ours wait no longer; 10 minutes if unknown."""
    try:
        found = group._get_backend(group._device_types[0]).options._timeout
        return found if isinstance(found, timedelta) else _USUAL_TIMEOUT
    except Exception:  # private in torch
        return _USUAL_TIMEOUT


def _bytes(blob: bytes) -> Tensor:
    return torch.frombuffer(bytearray(blob), dtype=torch.uint8) if blob else torch.empty(0, dtype=torch.uint8)


def _default_group() -> dist.ProcessGroup | None:
    if not (dist.is_available() and dist.is_initialized()):
        return None
    group: dist.ProcessGroup | None = dist.group.WORLD
    return group
