"""Hold what the doctor says: one item a thing, with a level and, where something is wrong, the way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from lastgood import __version__

Level = Literal["ok", "warn", "fail"]
WORST: Final = ("fail", "warn", "ok")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was looked at. ``fail``: something that was asked for cannot work as it is."""

    name: str
    level: Level
    says: str
    way_out: str = ""

    def line(self, width: int) -> str:
        """Return the item as one line of the terminal."""
        out = f" → {self.way_out}" if self.way_out else ""
        return f"{self.level:<5} {self.name:<{width}} {self.says}{out}"


def ok(name: str, says: str) -> Item:
    """Return an item that is in order."""
    return Item(name, "ok", says)


def warn(name: str, says: str, way_out: str) -> Item:
    """Return an item that limits what lastgood can do here."""
    return Item(name, "warn", says, way_out)


def fail(name: str, says: str, way_out: str) -> Item:
    """Return an item that keeps something from working that was asked for."""
    return Item(name, "fail", says, way_out)


def worst(items: Sequence[Item]) -> Level:
    """Return the worst level; ``ok`` of nothing."""
    levels = {item.level for item in items}
    return next((level for level in ("fail", "warn") if level in levels), "ok")


def lines(items: Sequence[Item]) -> list[str]:
    """Return the items for the terminal, one line each, and a last line that counts."""
    width = max(len(item.name) for item in items)
    counts = {level: sum(item.level == level for item in items) for level in WORST}
    total = ", ".join(f"{counts[level]} {level}" for level in reversed(WORST))
    return [*(item.line(width) for item in items), f"\n{total}"]


def document(items: Sequence[Item]) -> dict[str, Any]:
    """Return the items as plain data."""
    return {"version": __version__, "worst": worst(items), "items": [asdict(item) for item in items]}
