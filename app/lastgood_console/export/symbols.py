"""Draw the symbols of trust and blame as SVG: shape carries the meaning, colour repeats it.

Each is drawn around (x, y) with a radius of 7 units. The word that belongs to a symbol stands beside it, written by
the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lastgood_console.export.tokens import TOKENS, css_name

C: Final[Mapping[str, str]] = {token: f"var({css_name(token)})" for token in TOKENS}
"""Token -> the variable that the report sets for its light and its dark reader (see :mod:`.tokens`)."""

RADIUS: Final = 7.0


def num(value: float) -> str:
    """Return a coordinate with at most one decimal: the same picture, the same bytes."""
    return (
        f"{value:.1f}".removesuffix(".0").replace("-0", "0") if abs(value) < 0.05 else f"{value:.1f}".removesuffix(".0")
    )


def polygon(points: list[tuple[float, float]], style: str) -> str:
    """Return a closed shape."""
    return f'<polygon points="{" ".join(f"{num(x)},{num(y)}" for x, y in points)}" {style}/>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1, extra: str = "") -> str:
    """Return a straight line."""
    ends = f'x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{num(width)}"{" " + extra if extra else ""}/>'


def rect(x: float, y: float, width: float, height: float, fill: str, extra: str = "") -> str:
    """Return a rectangle."""
    box = f'x="{num(x)}" y="{num(y)}" width="{num(max(width, 0.5))}" height="{num(height)}"'
    return f'<rect {box} fill="{fill}"{" " + extra if extra else ""}/>'


def circle(x: float, y: float, radius: float, style: str) -> str:
    """Return a circle."""
    return f'<circle cx="{num(x)}" cy="{num(y)}" r="{num(radius)}" {style}/>'


def _check(x: float, y: float, colour: str) -> str:
    path = f"M{num(x - 3.2)} {num(y + 0.2)}l2.2 2.4 4.2 -5"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.7" stroke-linecap="round"/>'


def _cross(x: float, y: float, colour: str) -> str:
    path = f"M{num(x - 3)} {num(y - 3)}l6 6m0 -6l-6 6"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.7" stroke-linecap="round"/>'


def _letter(x: float, y: float, letter: str, colour: str) -> str:
    return (
        f'<text x="{num(x)}" y="{num(y + 3.6)}" font-size="10" font-weight="700" text-anchor="middle" '
        f'fill="{colour}">{letter}</text>'
    )


def _diamond(x: float, y: float, r: float) -> list[tuple[float, float]]:
    return [(x, y - r), (x + r, y), (x, y + r), (x - r, y)]


def _trusted(x: float, y: float) -> str:
    return circle(x, y, RADIUS, f'fill="{C["trusted"]}"') + _check(x, y, C["on"])


def _unverified(x: float, y: float) -> str:
    ring = circle(x, y, RADIUS - 0.7, f'fill="{C["bg"]}" stroke="{C["unverified"]}" stroke-width="1.4"')
    return ring + _letter(x, y, "?", C["unverified"])


def _suspect(x: float, y: float) -> str:
    shape = polygon([(x, y - 7), (x + 8, y + 6.5), (x - 8, y + 6.5)], f'fill="{C["suspect"]}" stroke-linejoin="round"')
    return shape + _letter(x, y + 1.5, "!", C["on"])


def _tainted(x: float, y: float) -> str:
    return rect(x - 6.5, y - 6.5, 13, 13, C["tainted"]) + _cross(x, y, C["on"])


def _missing(x: float, y: float) -> str:
    style = f'fill="{C["bg"]}" stroke="{C["missing"]}" stroke-width="1.2" stroke-dasharray="2.2 2"'
    return circle(x, y, RADIUS - 0.7, style)


def _unreadable(x: float, y: float) -> str:
    box = rect(x - 6, y - 6, 12, 12, C["bg"], f'stroke="{C["missing"]}" stroke-width="1.2" stroke-dasharray="2.2 2"')
    return box + line(x - 3, y + 4, x + 3, y - 4, C["missing"], 1.2)


def _accused(x: float, y: float) -> str:
    return polygon(_diamond(x, y, RADIUS), f'fill="{C["tainted"]}"')


def _candidate(x: float, y: float) -> str:
    return polygon(_diamond(x, y, RADIUS - 1), f'fill="{C["bg"]}" stroke="{C["suspect"]}" stroke-width="2"')


def _confirmed(x: float, y: float) -> str:
    whole = polygon(_diamond(x, y, RADIUS - 1), f'fill="{C["bg"]}" stroke="{C["tainted"]}" stroke-width="2"')
    return whole + polygon([(x, y - 6), (x, y + 6), (x - 6, y)], f'fill="{C["tainted"]}"')


def _cleared(x: float, y: float) -> str:
    ring = circle(x, y, RADIUS - 0.7, f'fill="{C["bg"]}" stroke="{C["unverified"]}" stroke-width="1.4"')
    return ring + _check(x, y, C["unverified"])


def _down(colour: str) -> Callable[[float, float], str]:
    return lambda x, y: polygon([(x - 6, y - 5), (x + 6, y - 5), (x, y + 5)], f'fill="{C[colour]}"')


def _info(x: float, y: float) -> str:
    return circle(x, y, RADIUS - 1, f'fill="{C["bg"]}" stroke="{C["ink2"]}"') + _letter(x, y, "i", C["ink2"])


def _note(x: float, y: float) -> str:
    return rect(x - 3.5, y - 3.5, 7, 7, C["bg"], f'stroke="{C["ink2"]}" stroke-width="1.2"')


def _neutral(x: float, y: float) -> str:
    return circle(x, y, 2.5, f'fill="{C["ink3"]}"')


_SHAPES: Final[Mapping[str, Callable[[float, float], str]]] = {
    "trusted": _trusted,
    "unverified": _unverified,
    "suspect": _suspect,
    "tainted": _tainted,
    "missing": _missing,
    "unreadable": _unreadable,
    "accused": _accused,
    "candidate": _candidate,
    "confirmed": _confirmed,
    "cleared": _cleared,
    "critical": _down("tainted"),
    "warning": _down("suspect"),
    "info": _info,
    "note": _note,
}


def symbol(tone: str, x: float, y: float) -> str:
    """Return the symbol of a tone (see :data:`lastgood.timeline.Tone`) as SVG elements around (x, y)."""
    return _SHAPES.get(tone, _neutral)(x, y)


def last_good_ring(x: float, y: float) -> str:
    """Return the ring that marks the last good checkpoint, around its own symbol."""
    return circle(x, y, RADIUS + 3, f'fill="none" stroke="{C["ink"]}" stroke-width="1.6"')


def icon(tone: str, size: int = 16) -> str:
    """Return the symbol as an inline picture for text and tables; the word beside it is for screen readers."""
    body = symbol(tone, 8.5, 8.5)
    return f'<svg class="icon" width="{size}" height="{size}" viewBox="0 0 17 17" aria-hidden="true">{body}</svg>'
