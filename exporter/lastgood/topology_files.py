"""Keep the topology of each attempt: which rank ran on which device.

``<run>/topology/<attempt>.json.gz``, one file per attempt. 16,384 ranks are 2.8 MiB as plain JSON, and a restart
changes a node or two. So a file is columnar, and either *full* or a *delta*: only the ranks whose device differs from
those of ``base``, an earlier attempt whose file is full. A delta never builds on a delta, so reading one attempt opens
at most two files however often the run restarted. Readers open them when they need them, never all at once.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from lastgood.errors import JournalError
from lastgood.state import Place

_Key = tuple[int, str, str, int]
"""The fields of a place."""

FORMAT: Final = 1
MAX_BYTES: Final = 256 << 20
"""Longest topology once unpacked; a file that unpacks to more is refused."""


def topology_name(attempt: int) -> str:
    """Return the file's name relative to the run directory."""
    return f"topology/{attempt}.json.gz"


def write_topology(run_dir: Path, attempt: int, places: Sequence[Place]) -> str:
    """Write the places of an attempt (rank i at index i), atomically; return the name relative to the run directory.

    Raises ``OSError`` when the file cannot be written, ``ValueError`` when the places are not those of ranks 0..n-1.
    """
    if [place.rank for place in places] != list(range(len(places))):
        raise ValueError("places must hold every rank once, in order, from 0")
    path = run_dir / topology_name(attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = gzip.compress(json.dumps(_pack(run_dir, attempt, places), separators=(",", ":")).encode(), 6, mtime=0)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with open(scratch, "wb") as file:
        file.write(packed)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    return topology_name(attempt)


def read_topology(run_dir: Path, attempt: int) -> tuple[Place, ...]:
    """Return the places of an attempt, by rank. Raises :class:`JournalError` naming the file that cannot be read."""
    return Topologies(run_dir).read(attempt)


class Topologies:
    """Read the topologies of a run. A full one is unpacked once, and equal places are one object.

    A run of 16,384 ranks and 400 attempts has 6.9 million places, most of them the same few, and few full topologies.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._full: dict[int, tuple[Place, ...]] = {}
        self._known: dict[_Key, Place] = {}
        self._last: tuple[int, list[Place], tuple[Place, ...]] | None = None

    def read(self, attempt: int) -> tuple[Place, ...]:
        """Return the places of an attempt as :func:`read_topology`."""
        content = _load(self._run_dir, attempt)
        try:
            if content.get("base") is None:
                self._full[attempt] = _checked(_unpack(content, self._known), content["world_size"])
                return self._full[attempt]
            return self._changed(int(content["base"]), _unpack(content, self._known), content["world_size"])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:
            raise JournalError(f"{topology_name(attempt)}: not a topology of lastgood ({problem!r})") from None

    def _changed(self, base: int, changed: list[Place], world_size: int) -> tuple[Place, ...]:
        """Return the places of a delta; two deltas that say the same are one object."""
        full = self._base(base)
        if self._last is None or self._last[:2] != (base, changed) or len(self._last[2]) != world_size:
            self._last = (base, changed, _merged(full, changed, world_size))
        return self._last[2]

    def _base(self, attempt: int) -> tuple[Place, ...]:
        if attempt not in self._full:
            content = _load(self._run_dir, attempt)
            if content.get("base") is not None:
                raise ValueError(f"builds on attempt {attempt}, which is itself a delta")
            self._full[attempt] = _checked(_unpack(content, self._known), content["world_size"])
        return self._full[attempt]


def _merged(full: Sequence[Place], changed: Sequence[Place], world_size: int) -> tuple[Place, ...]:
    ranks = [place.rank for place in changed]
    if len(full) == world_size and min(ranks, default=0) >= 0 and max(ranks, default=-1) < world_size:
        merged = list(full)
        for rank, place in zip(ranks, changed, strict=True):
            merged[rank] = place
        return tuple(merged)
    by_rank = {place.rank: place for place in (*full, *changed) if place.rank < world_size}
    return _checked([by_rank[rank] for rank in sorted(by_rank)], world_size)


def _pack(run_dir: Path, attempt: int, places: Sequence[Place]) -> dict[str, Any]:
    """Return a delta to the newest full topology where that is shorter, else the full one."""
    head = {"format": FORMAT, "attempt": attempt, "world_size": len(places)}
    base = _newest_full(run_dir, attempt)
    if base is not None:
        before = dict(enumerate(base[1]))
        changed = [place for place in places if before.get(place.rank) != place]
        if 4 * len(changed) <= len(places):
            return head | {"base": base[0]} | _columns(changed)
    return head | {"base": None} | _columns(places)


def _newest_full(run_dir: Path, attempt: int) -> tuple[int, tuple[Place, ...]] | None:
    """Return the full topology that the previous attempt is or builds on."""
    try:
        base = _load(run_dir, attempt - 1).get("base")
        number = attempt - 1 if base is None else int(base)
        return number, read_topology(run_dir, number)
    except (JournalError, TypeError, ValueError):
        return None


def _columns(places: Iterable[Place]) -> dict[str, Any]:
    rows = list(places)
    nodes = list(dict.fromkeys(place.node for place in rows))
    index = {node: i for i, node in enumerate(nodes)}
    return {
        "nodes": nodes,
        "rank": [place.rank for place in rows],
        "node": [index[place.node] for place in rows],
        "slot": [place.slot for place in rows],
        "gpu_uuid": [place.gpu_uuid for place in rows],
    }


def _unpack(content: dict[str, Any], known: dict[_Key, Place]) -> list[Place]:
    """Return the places of a file; one that is known already is the same object."""
    nodes = _texts(content["nodes"])
    where = [nodes[node] for node in content["node"]]
    columns = (_whole(content["rank"]), where, _texts(content["gpu_uuid"]), _whole(content["slot"]))
    places = list(map(known.get, zip(*columns, strict=True)))
    if not all(places):
        for i, key in enumerate(zip(*columns, strict=True)):
            if places[i] is None:
                places[i] = known.setdefault(key, Place(*key))
    return cast(list[Place], places)


def _texts(column: Sequence[Any]) -> Sequence[str]:
    return column if set(map(type, column)) <= {str} else [str(value) for value in column]


def _whole(column: Sequence[Any]) -> Sequence[int]:
    return column if set(map(type, column)) <= {int} else [int(value) for value in column]


def _checked(places: Sequence[Place], world_size: int) -> tuple[Place, ...]:
    if [place.rank for place in places] != list(range(world_size)):
        raise ValueError(f"does not hold every rank from 0 to {world_size - 1}")
    return tuple(places)


def _load(run_dir: Path, attempt: int) -> dict[str, Any]:
    name = topology_name(attempt)
    try:
        fd = os.open(run_dir / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as raw, gzip.open(raw) as unpacked:
            text = unpacked.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ValueError(f"unpacks to more than {MAX_BYTES >> 20} MiB")
        content = json.loads(text)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as problem:
        raise JournalError(f"{name}: cannot be read ({problem})") from None
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise JournalError(f"{name}: not a topology of lastgood")
    if content["format"] > FORMAT:
        raise JournalError(f"{name}: needs a lastgood that reads topology format {content['format']}, not {FORMAT}")
    return content
