"""List every incident that names a device of one node, whatever run and rank it had there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from lastgood.state import Incident, Suspect
from lastgood.wording import gpu_text, has_gpu, moment, window_text
from lastgood_console.characters import escape
from lastgood_console.components.devices import DeviceRow
from lastgood_console.components.symbols import status_mark
from lastgood_console.components.tables import MOST_ROWS, Column, table_html

COLUMNS: Final = (
    Column("Known (UTC)", "nowrap"), Column("Run", "named"), Column("Incident", "nowrap"), Column("Device", "named"),
    Column("Rank then", "num"), Column("Verdict", "nowrap"), Column("Check", "nowrap"), Column("Steps", "nowrap"),
    Column("Role", "nowrap"), Column("State", "nowrap"),
)  # fmt: skip


def history_rows(found: Sequence[DeviceRow]) -> list[tuple[Incident, Suspect]]:
    """Return the incidents that name these devices, each with the device as it was named, newest first."""
    devices = {row.device for row in found}
    known = {(i.run, i.id): i for row in found for i in row.incidents}
    named = [(i, s) for i in known.values() for s in i.suspects if s.device in devices]
    return sorted(named, key=lambda pair: (pair[0].opened_at, pair[0].id, pair[1].slot), reverse=True)


def history_note(found: Sequence[DeviceRow], rows: Sequence[tuple[Incident, Suspect]]) -> str:
    """Return how many devices, and how often incidents accuse them."""
    accusing = {(i.run, i.id) for row in found for i in row.quarter}
    devices = f"{len(found)} device{'' if len(found) == 1 else 's'}"
    runs = len({i.run for i, _ in rows})
    over = f" over {runs} run{'' if runs == 1 else 's'}" if runs else ""
    return f"{devices} · accused by {len(accusing)} incident{'' if len(accusing) == 1 else 's'} of 90 days{over}"


def history_html(rows: Sequence[tuple[Incident, Suspect]]) -> str:
    """Return the table."""
    return table_html(COLUMNS, [("", _cells(*row)) for row in rows[:MOST_ROWS]], label="History of the node")


def _cells(incident: Incident, suspect: Suspect) -> list[str]:
    address = escape(urlencode({"run": incident.run, "incident": incident.id}), quote=True)
    gpu = escape(gpu_text(suspect.gpu_uuid)) if has_gpu(suspect) else "no GPU"
    whole = escape(suspect.gpu_uuid, quote=True)
    return [
        f"{moment(incident.opened_at):%d %b %H:%M}",
        escape(incident.run),
        f'<a href="incident?{address}">{escape(incident.id)}</a>',
        f'<span title="{whole}">{gpu}</span>, slot {suspect.slot}',
        str(suspect.rank),
        status_mark(incident.status),
        escape(incident.check),
        escape(window_text(incident.window)),
        escape(suspect.role),
        escape(incident.state),
    ]
