"""Read safetensors files: 8 bytes of length, a JSON header, the tensors' bytes.

The format is read here instead of by the library ``safetensors``: it is a dozen lines, a cluster's login node needs
nothing installed, and a truncated file still tells *which* tensors it lost, where the library refuses it as a whole.

A file written by ``HuggingFaceStorageWriter`` of ``torch.distributed.checkpoint`` holds parts of tensors: its header
says where each begins. Not covered: types of less than a byte (F4, F6).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from lastgood.checkpoint_tensors import Part, Stored, UnreadableError

SUFFIX: Final = ".safetensors"
INDEX_SUFFIX: Final = ".safetensors.index.json"
HEADER_LIMIT: Final = 100_000_000
"""Bytes; the format's own limit."""
_DTYPES: Final[dict[str, torch.dtype]] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}


def read_parts(path: Path, file: str) -> dict[str, Part]:
    """Return name -> part of every tensor of one file. Raises :class:`UnreadableError`."""
    header, start = _header(path, file)
    places = _places(header)
    return {name: _part(path, file, name, entry, start, places) for name, entry in header.items() if name != _META}


def whole(parts: Iterable[tuple[str, Part]]) -> dict[str, Stored]:
    """Return name -> tensor, put together from the parts of all files."""
    boxes: dict[str, list[Part]] = {}
    for name, part in parts:
        boxes.setdefault(name, []).append(part)
    return {name: Stored(_extent(found), tuple(found)) for name, found in boxes.items()}


def files_of(index: Path) -> set[str]:
    """Return the files that an index names. Raises :class:`UnreadableError`."""
    try:
        return {str(file) for file in json.loads(index.read_bytes())["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UnreadableError(f"{index.name} cannot be read as a safetensors index: {problem!r}") from None


_META: Final = "__metadata__"


def _header(path: Path, file: str) -> tuple[dict[str, Any], int]:
    """Return the header, and where the tensors' bytes begin."""
    try:
        with open(path, "rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            if not 2 <= size <= HEADER_LIMIT:
                raise ValueError(f"its header is said to have {size} bytes")
            header = json.loads(stream.read(size))
        if not isinstance(header, dict):
            raise ValueError("its header is not a table of tensors")
        return header, 8 + size
    except (OSError, ValueError, RecursionError) as problem:
        raise UnreadableError(f"{file} cannot be read as safetensors: {problem}") from None


def _places(header: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return name -> {"saved_offsets": [...]} of a file that holds parts; empty for any other."""
    try:
        places = json.loads(header[_META]["DCP_SHARDING_INFO"])
        return places if isinstance(places, dict) else {}
    except (KeyError, TypeError, ValueError):
        return {}


def _part(path: Path, file: str, name: str, entry: Any, start: int, places: Mapping[str, Any]) -> Part:
    try:
        shape = tuple(_count(n) for n in entry["shape"])
        begin, end = (_count(n) for n in entry["data_offsets"])
        dtype = entry["dtype"]
        offsets = tuple(_count(n) for n in places[name]["saved_offsets"]) if name in places else (0,) * len(shape)
    except (KeyError, TypeError, ValueError) as problem:
        raise UnreadableError(f"{file} says of {name!r} what no safetensors file says: {problem!r}") from None
    return Part(file, offsets, shape, partial(_tensor, path, file, dtype, shape, start + begin, end - begin))


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value


def _tensor(path: Path, file: str, dtype: str, shape: tuple[int, ...], start: int, size: int) -> Tensor:
    if dtype not in _DTYPES:
        raise UnreadableError(f"{file} holds the type {dtype!r}, which is not known here")
    if size != math.prod(shape) * _DTYPES[dtype].itemsize:
        raise UnreadableError(f"{file} holds {size} bytes for shape {list(shape)} of {dtype}")
    if (lost := start + size - path.stat().st_size) > 0:
        raise UnreadableError(f"{file} ends {lost} bytes too early")
    with open(path, "rb") as stream:
        stream.seek(start)
        data = bytearray(stream.read(size))
    return torch.frombuffer(data, dtype=_DTYPES[dtype]).reshape(shape) if size else torch.empty(shape)


def _extent(parts: Iterable[Part]) -> tuple[int, ...]:
    """Return the shape of the whole tensor: how far its parts reach."""
    ends = [tuple(o + n for o, n in zip(part.offsets, part.shape, strict=False)) for part in parts]
    return tuple(max(sizes) for sizes in zip(*ends, strict=False))
