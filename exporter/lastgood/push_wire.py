"""Write samples as Prometheus remote write 1.0 has them: one protobuf message, packed with snappy.

The message is three nested ones with two fields each (https://prometheus.io/docs/specs/remote_write_spec), so they
are written by hand: a protobuf library in a training image would have to be the version that everything else there
wants. Snappy comes from ``cramjam`` (extra ``push``), imported when the first push is set up.

::

    WriteRequest  1: TimeSeries, repeated
    TimeSeries    1: Label, repeated, sorted by name    2: Sample, repeated
    Label         1: name    2: value                   Sample  1: value, a double    2: time, int64 milliseconds
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Final

Row = tuple[bytes, bytes, int]
"""A series (as :func:`series` gives it), its value (eight bytes), its time (Unix milliseconds)."""

STALE: Final = struct.pack("<Q", 0x7FF0_0000_0000_0002)
"""The NaN that ends a series at a receiver. It stands for no value, so no value may look like it."""
_NOT_A_NUMBER: Final = struct.pack("<Q", 0x7FF8_0000_0000_0001)

HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


def number(value: float) -> bytes:
    """Return a value's eight bytes; every NaN becomes the same one, whatever its bits were."""
    return _NOT_A_NUMBER if math.isnan(value) else struct.pack("<d", value)


def series(name: str, labels: Mapping[str, str]) -> bytes:
    """Return the labels of a series, sorted; an empty one would mean that it is absent, and is left out."""
    named = {"__name__": name, **labels}
    return b"".join(_field(1, _label(key, value)) for key, value in sorted(named.items()) if value)


def request(rows: Iterable[Row]) -> bytes:
    """Return the message that writes these samples; each series at most once."""
    return b"".join(entry(labels, sample(value, time)) for labels, value, time in rows)


def entry(labels: bytes, samples: bytes) -> bytes:
    """Return the part of a message about one series: its labels and its samples, oldest first."""
    return _field(1, labels + samples)


def sample(value: bytes, time: int) -> bytes:
    """Return one sample of a series."""
    return _field(2, b"\x09" + value + b"\x10" + _varint(time))


def packer() -> Callable[[bytes], bytes]:
    """Return what compresses a message. Raises ImportError when the extra ``push`` is not installed."""
    from cramjam import snappy

    return lambda message: bytes(snappy.compress_raw(message))


def _label(name: str, value: str) -> bytes:
    return _field(1, name.encode()) + _field(2, value.encode())


def _field(number: int, content: bytes) -> bytes:
    """Return a field of the length-delimited kind."""
    return bytes((number << 3 | 2,)) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first; a negative one as its 64-bit complement."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
