"""Let a checkpoint rot: flip bits of one byte of tensor data in a file on disk, as a failing disk or copy would.

The file is one that ``torch.save`` wrote, which is a zip of stored (uncompressed) members. Only a byte of a tensor is
touched: the archive stays whole, and ``torch.load`` loads it without a word. Pure: no torch.
"""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

from lastgood.errors import ConfigError

_LOCAL_HEADER = 30
"""Bytes of a zip member's own header before its name and extra field."""


def rot_(path: Path, seed: int) -> str:
    """Change one byte of the tensor data in place; return which, in words. Raises ConfigError where there is none."""
    chance = random.Random(f"rot {seed}")
    with zipfile.ZipFile(path) as archive:
        tensors = [m for m in archive.infolist() if "/data/" in m.filename and m.file_size]
        if any(m.compress_type != zipfile.ZIP_STORED for m in tensors) or not tensors:
            raise ConfigError(f"{path} holds no tensor data that torch.save wrote: choose such a file")
        member = chance.choices(tensors, [m.file_size for m in tensors])[0]
    with path.open("r+b") as file:
        file.seek(member.header_offset + 26)
        lengths = file.read(4)
        begin = member.header_offset + _LOCAL_HEADER
        begin += int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        place = begin + chance.randrange(member.file_size)
        file.seek(place)
        old = file.read(1)[0]
        new = old ^ chance.randrange(1, 256)
        file.seek(place)
        file.write(bytes([new]))
    return f"byte {place} of {path.name} ({member.filename.rpartition('/data/')[2]}): {old:#04x} -> {new:#04x}"
