"""Hold that no character of the whole of Unicode steers whoever shows a text."""

from __future__ import annotations

import sys

from lastgood_console.characters import REPLACEMENT, escape, steers, tamed


def test_every_character_that_steers_is_marked_and_every_other_stays() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        assert tamed(f"a{character}b", keep="") == f"a{REPLACEMENT if steers(character) else character}b"


def test_only_what_is_kept_may_steer() -> None:
    assert tamed("a\nb\tc") == f"a\nb{REPLACEMENT}c"
    assert escape("a\tb<i>\x1b[31m") == f"a\tb&lt;i&gt;{REPLACEMENT}[31m"
