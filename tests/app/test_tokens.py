from __future__ import annotations

from itertools import combinations
from math import hypot

import pytest

from lastgood_console.export import tokens
from lastgood_console.export.tokens import THEMES, ThemeName, theme

TRUST = ("trusted", "unverified", "suspect", "tainted")
TEXTS = ("ink", "ink2", "ink3", "act", *TRUST)
SMALLEST_DISTANCE = {"light": 13.0, "dark": 11.0}

# Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB.
DEFICIENCIES = {
    "none": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
Vector = tuple[float, float, float]


def linear(colour: str) -> Vector:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return r, g, b


def luminance(colour: str) -> float:
    r, g, b = linear(colour)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def times(matrix: tuple[Vector, ...], v: Vector) -> Vector:
    x, y, z = (sum(m * c for m, c in zip(row, v, strict=True)) for row in matrix)
    return x, y, z


def oklab(v: Vector) -> Vector:
    lms = times(
        (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        ),
        v,
    )
    roots = tuple(max(c, 0.0) ** (1 / 3) for c in lms)
    return times(
        (
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        ),
        (roots[0], roots[1], roots[2]),
    )


def seen(colour: str, deficiency: str) -> Vector:
    r, g, b = (min(1.0, max(0.0, c)) for c in times(DEFICIENCIES[deficiency], linear(colour)))
    return oklab((r, g, b))


@pytest.mark.parametrize("name", THEMES)
def test_every_text_stands_out_from_the_page(name: ThemeName) -> None:
    colours = theme(name)
    found = {token: contrast(colours[token], colours["bg"]) for token in TEXTS}
    weak = {token: value for token, value in found.items() if value < 4.5}
    assert not weak


@pytest.mark.parametrize("name", THEMES)
def test_text_on_the_tints_is_ink_and_stands_out(name: ThemeName) -> None:
    colours = theme(name)
    tints = ("panel", "trusted_t", "unverified_t", "suspect_t", "tainted_t")
    assert min(contrast(colours["ink"], colours[tint]) for tint in tints) >= 4.5


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("name", THEMES)
def test_the_four_kinds_of_trust_stay_apart_for_every_eye(name: ThemeName, deficiency: str) -> None:
    marks = {token: seen(theme(name)[token], deficiency) for token in TRUST}
    near = min(
        100 * hypot(*(x - y for x, y in zip(marks[a], marks[b], strict=True))) for a, b in combinations(TRUST, 2)
    )
    assert near >= SMALLEST_DISTANCE[name] - 1.5


def test_every_token_has_two_six_digit_colours() -> None:
    values = [value for pair in tokens.TOKENS.values() for value in pair]
    assert not [v for v in values if len(v) != 7 or v[0] != "#" or int(v[1:], 16) < 0]


def test_the_heat_ramp_runs_one_way_and_has_no_colour_of_trust() -> None:
    for name in THEMES:
        light = [luminance(colour) for colour in tokens.HEAT[name]]
        assert light in (sorted(light), sorted(light, reverse=True))
        assert not set(tokens.HEAT[name]) & {theme(name)[t] for t in TRUST}


def test_the_css_follows_the_theme_or_is_one() -> None:
    assert "--lg-trusted: light-dark(#08527E, #86D0F5);" in tokens.css_variables()
    assert "--lg-trusted-t: #E1EDF5;" in tokens.css_variables("light")
    assert "light-dark" not in tokens.css_variables("dark")
    assert "--lg-band-fill: light-dark(rgba(227, 163, 58, 0.18), rgba(251, 188, 79, 0.15));" in tokens.css_variables()


def test_no_other_module_holds_a_colour() -> None:
    from importlib.resources import files
    from re import findall

    root = files("lastgood_console")
    sources = [f for f in (root / "export").iterdir() if f.name.endswith((".py", ".css")) and f.name != "tokens.py"]
    found = {f.name: findall(r"#[0-9A-Fa-f]{6}\b", f.read_text("utf-8")) for f in sources}
    assert not {name: colours for name, colours in found.items() if colours}
