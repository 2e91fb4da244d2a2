"""Take the path prefix from a command line."""

from __future__ import annotations

import argparse
import re
from typing import Final

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*", re.ASCII)
TAKEN: Final = frozenset(("api", "healthz", "metrics", "media", "static", "component", "_stcore", "auth"))
"""How paths below the prefix begin: a prefix like one of these would make two meanings of one path."""


def base_path(text: str) -> str:
    """Return "" or "/prefix". Raises ``ArgumentTypeError`` for what no proxy passes on as it is."""
    base = f"/{text.strip('/')}".rstrip("/")
    if not _PREFIX.fullmatch(base):
        raise argparse.ArgumentTypeError(f"{text!r} is no path prefix: letters, digits and -._~, such as /lastgood")
    if base.split("/")[1:2] and base.split("/")[1] in TAKEN:
        raise argparse.ArgumentTypeError(f"{text!r} begins like a path of the console's own: take another")
    return base
