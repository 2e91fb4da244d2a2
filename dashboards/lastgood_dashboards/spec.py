"""Describe dashboards as plain data: what a panel asks, how it is shown, what it says when there is nothing.

The pages (``fleet``, ``run``, ``node``, ``checkpoints``) are written in these types and ``render`` turns them into
Grafana's, so a page reads as a list of questions, and a test can read the questions without Grafana's types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["stat", "lines", "table", "states", "heat"]

GRID_WIDTH: Final = 24

# Grafana's own names, which follow its theme. Blue is "good": green against red fails for the most frequent colour
# vision deficiencies. Colour is spent on trust and blame; everything else is neutral.
GOOD: Final = "blue"
LATE: Final = "orange"
BAD: Final = "red"
PLAIN: Final = "text"
PEER: Final = "#8A969D"
FAINT: Final = "rgba(138, 150, 157, 0.25)"
NEUTRAL_RAMP: Final = tuple(f"rgba(138, 150, 157, {opacity})" for opacity in (0.12, 0.35, 0.6, 0.85, 1))
"""Heat without blame, low to high; stands on the light and on the dark theme."""

NONE_AT_MINUS_ONE: Final[Mapping[str, tuple[str, str]]] = {"-1": ("none", LATE)}

Steps = tuple[tuple[float | None, str], ...]
"""Value from which a colour holds; the first is ``None``, from below."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a value. ``url`` may use Grafana's variables."""

    title: str
    url: str

    @property
    def outside(self) -> bool:
        """Tell whether it leaves Grafana."""
        return self.url.startswith("${console}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question. ``legend`` names a line; in a table it is the header of the query's column.

    ``unit``, ``texts`` and ``steps`` belong to a table's column and default to those of its panel. ``band_to`` is the
    legend of the line down to which the area under this one is filled.
    """

    expr: str
    legend: str
    colour: str = ""
    band_to: str = ""
    unit: str = ""
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    steps: Steps = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. ``id`` never changes: links and alert rules point to it.

    ``empty`` is what it says without data, which is never the same as zero. ``texts`` gives a value a word and a
    colour. ``points``: at most so many moments are asked for, where each costs a look at every rank.

    Of a table, ``labels`` are the label columns, in order, and ``highest_first`` is the header of the column that sorts
    it. ``links`` belong to the label they are keyed by (of a line: the key is empty).
    """

    id: int
    kind: Kind
    title: str
    says: str
    queries: tuple[Query, ...]
    empty: str
    width: int
    height: int = 8
    unit: str = "none"
    decimals: int | None = None
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    steps: Steps = ()
    points: int | None = None
    low: float | None = None
    high: float | None = None
    stacked: bool = False
    labels: tuple[str, ...] = ()
    highest_first: str = ""
    links: Mapping[str, tuple[Link, ...]] = field(default_factory=dict, hash=False)

    @property
    def instant(self) -> bool:
        """Tell whether it asks for one moment, the end of the time range, rather than for the whole of it."""
        return self.kind in ("stat", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels that are looked at together, under one heading. ``id`` as of a panel."""

    id: int
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A selector of a dashboard, filled by a query. ``many``: several values, or all."""

    name: str
    label: str
    says: str
    query: str
    many: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard. ``runs`` is the matcher that its run variable fills."""

    name: str
    uid: str
    title: str
    says: str
    since: str
    runs: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    console: Link

    @property
    def panels(self) -> Iterator[Panel]:
        """Yield the panels of all rows."""
        for row in self.rows:
            yield from row.panels


@dataclass(frozen=True, slots=True)
class Place:
    """Where a panel stands, in Grafana's grid of 24 columns."""

    x: int
    y: int
    width: int
    height: int


def places(rows: tuple[Row, ...]) -> dict[int, Place]:
    """Return the place of every row heading and panel by its id: panels from left to right, then the next line."""
    found, y = {}, 0
    for row in rows:
        found[row.id] = Place(0, y, GRID_WIDTH, 1)
        y += 1
        for line in _lines(row.panels):
            x = 0
            for panel in line:
                found[panel.id] = Place(x, y, panel.width, panel.height)
                x += panel.width
            y += max(panel.height for panel in line)
    return found


def _lines(panels: tuple[Panel, ...]) -> Iterator[list[Panel]]:
    """Yield the panels that stand beside each other. A panel that does not fit begins a new line."""
    line: list[Panel] = []
    for panel in panels:
        if line and sum(other.width for other in line) + panel.width > GRID_WIDTH:
            yield line
            line = []
        line.append(panel)
    if line:
        yield line
