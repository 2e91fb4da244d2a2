"""Draw devices: those that have been accused or named first, each with its counts; then every device as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lastgood.wording import age_text, gpu_text, has_gpu, moment
from lastgood_console.characters import escape
from lastgood_console.components.devices import DeviceRow, Seat, is_repeat_offender
from lastgood_console.components.symbols import marked
from lastgood_console.components.tables import NOTHING, Column, table_html

HEADS: Final = ("Device", "Standing", "Accused, 7 days", "Accused, 90 days", "Last seen", "Runs now as")
COLUMNS: Final = (
    Column("Node", "named"), Column("GPU", "named"), Column("Slot", "num"), Column("Standing", "nowrap"),
    Column("Accused, 7 days", "num"), Column("Accused, 90 days", "num"), Column("Last seen", "nowrap"),
    Column("Runs now as", "named"),
)  # fmt: skip
MOST_SEATS: Final = 2
MOST_DEVICES: Final = 60
"""Rows of the table. The accused stand first and the others are searched for; hundreds more would cost each visit."""


def standing(row: DeviceRow) -> str:
    """Return how a device stands: symbol and words."""
    if is_repeat_offender(row):
        return marked("accused", f"accused {len(row.quarter)} times")
    if row.quarter:
        return marked("accused", "accused once")
    if row.undecided:
        return marked("candidate", "candidate")
    return '<span class="lg-c-quiet">not accused</span>'


def named_head_html() -> str:
    """Return the heads of the rows of named devices."""
    return f'<div class="lg-dev lg-inc-head">{"".join(f"<span>{escape(head)}</span>" for head in HEADS)}</div>'


def named_html(row: DeviceRow, now: str) -> str:
    """Return the row of a device that incidents name, without its links. ``now``: RFC 3339."""
    place = row.place
    node = escape(place.node, quote=True)
    name = f'<b title="{node}">{node}</b><small>{_gpu(row)}, slot {place.slot}</small>'
    cells = (name, standing(row), str(len(row.week)), str(len(row.quarter)), _seen(row, now), _seats(row.seats))
    style = "lg-dev lg-dev-repeat" if is_repeat_offender(row) else "lg-dev"
    return f'<div class="{style}">{"".join(f"<span>{cell}</span>" for cell in cells)}</div>'


def devices_html(found: Sequence[DeviceRow], now: str) -> str:
    """Return the table of devices, at most :data:`MOST_DEVICES`. ``now``: RFC 3339."""
    rows = [("", _cells(row, now)) for row in found[:MOST_DEVICES]]
    return table_html(COLUMNS, rows, label="Devices")


def _cells(row: DeviceRow, now: str) -> list[str]:
    return [
        escape(row.place.node), _gpu(row), str(row.place.slot), standing(row), str(len(row.week)),
        str(len(row.quarter)), _seen(row, now), _seats(row.seats),
    ]  # fmt: skip


def _gpu(row: DeviceRow) -> str:
    if row.place.gpu_uuid.startswith("cpu-"):
        return "no GPU"
    whole, short = escape(row.place.gpu_uuid, quote=True), escape(gpu_text(row.place.gpu_uuid))
    return f'<span title="{whole}">{short}</span>' if has_gpu(row.place) else short


def _seen(row: DeviceRow, now: str) -> str:
    return f"{age_text((moment(now) - moment(row.last_seen)).total_seconds())} ago"


def _seats(seats: Sequence[Seat]) -> str:
    if not seats:
        return NOTHING
    more = f" and {len(seats) - MOST_SEATS} more" if len(seats) > MOST_SEATS else ""
    return escape(", ".join(f"{run} rank {rank}" for run, rank in seats[:MOST_SEATS]) + more)
