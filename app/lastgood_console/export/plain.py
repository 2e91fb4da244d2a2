"""Write steps in a file as whoever searches it types them: plain digits, where a page has groups of three.

The words of a document come as they are on a page. A path is exact, so a document with such a space in a path stays
as it is. A number that somebody copied from a page into a note is found too. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

NARROW_SPACE: Final = "\u202f"
_GROUPED: Final = re.compile(rf"(?<![\d{NARROW_SPACE}])\d{{1,3}}(?:{NARROW_SPACE}\d{{3}})+(?!\d)")


def plain_steps(text: str, document: Mapping[str, Any]) -> str:
    """Return a document's rendered text with plain digits in place of grouped ones."""
    resume = [document["resume"]] if document["resume"] else []
    if any(NARROW_SPACE in save["path"] for save in (*document["checkpoints"], *document["covered"], *resume)):
        return text
    return _GROUPED.sub(lambda found: found[0].replace(NARROW_SPACE, ""), text)
