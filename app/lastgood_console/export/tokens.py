"""Own the colours: every value of the look, light and dark, exists here and nowhere else.

CSS takes them as ``--lg-<name>`` (:func:`css_variables`), charts and the report take them as plain strings
(:func:`theme`). Colour is spent on trust and blame only. Blue is "good": green against red fails for the most
frequent colour vision deficiencies, so there is no green. ``tests/app/test_tokens.py`` recomputes contrast and
distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

ThemeName = Literal["light", "dark"]
THEMES: Final[tuple[ThemeName, ThemeName]] = ("light", "dark")

TOKENS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "bg": ("#FCFCFB", "#11161A"),
        "panel": ("#F2F4F3", "#1A2127"),
        "line": ("#DDE2E2", "#2C353B"),
        "line2": ("#A9B3B6", "#55626A"),
        "border": ("#D3DADA", "#37424A"),
        "ink": ("#182026", "#E7ECEE"),
        "ink2": ("#44505A", "#BAC5CA"),
        "ink3": ("#5C6770", "#94A1A9"),
        "act": ("#22303A", "#DCE4E8"),
        "trusted": ("#08527E", "#86D0F5"),
        "trusted_t": ("#E1EDF5", "#15303F"),
        "unverified": ("#67727A", "#9BA7AF"),
        "unverified_t": ("#E9EDED", "#283137"),
        "suspect": ("#9C660C", "#FBBC4F"),
        "suspect_t": ("#FAEDD6", "#3A2D14"),
        "tainted": ("#8E1A14", "#F2776A"),
        "tainted_t": ("#F8E4E0", "#42211E"),
        "missing": ("#7C878D", "#7F8C94"),
        "band": ("#E3A33A", "#FBBC4F"),
        "edge": ("#9C660C", "#FBBC4F"),
        "peer": ("#8A969D", "#8795A0"),
        "peer_t": ("#DFE4E5", "#2E383F"),
        "on": ("#FFFFFF", "#11161A"),
    }
)
"""Name -> (light, dark)."""

BAND_OPACITY: Final[Mapping[ThemeName, float]] = MappingProxyType({"light": 0.18, "dark": 0.15})
PEER_OPACITY: Final = 0.25

HEAT: Final[Mapping[ThemeName, tuple[str, ...]]] = MappingProxyType(
    {
        "light": ("#EEF1F1", "#DEE3E4", "#C9D1D4", "#B1BCC1", "#96A4AB", "#7A8A93", "#5E6F79", "#43545F"),
        "dark": ("#1C242A", "#252F36", "#303C44", "#3D4B53", "#4D5D66", "#62737C", "#7E8E97", "#A1AFB6"),
    }
)
"""Neutral ramp of heat maps, low to high."""

WORDMARK: Final = ("#2B86BD", "#6F7C84")
"""Mid tones that stand on both themes: one picture serves both."""


def theme(name: ThemeName) -> dict[str, str]:
    """Return the tokens of one theme: name -> hexadecimal colour."""
    return {token: pair[name == "dark"] for token, pair in TOKENS.items()}


def css_name(token: str) -> str:
    """Return the CSS variable of a token: ``--lg-trusted-t``."""
    return f"--lg-{token.replace('_', '-')}"


def css_variables(name: ThemeName | None = None) -> str:
    """Return the declarations of all tokens: of one theme, or with ``light-dark()`` following ``color-scheme``."""
    if name is not None:
        values = theme(name) | {"band_fill": band_fill(name)}
        return " ".join(f"{css_name(token)}: {value};" for token, value in values.items())
    light, dark = (theme(n) | {"band_fill": band_fill(n)} for n in THEMES)
    return " ".join(f"{css_name(token)}: light-dark({light[token]}, {dark[token]});" for token in light)


def band_fill(name: ThemeName) -> str:
    """Return the window's translucent fill as a CSS colour."""
    red, green, blue = (int(theme(name)["band"][i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {BAND_OPACITY[name]})"
