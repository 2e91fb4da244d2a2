"""Find the runbooks: what to do about each alert, written for someone woken at night.

They ship in the wheel as ``lastgood_alerts/runbooks``; in a checkout they are ``alerts/runbooks``, beside the package.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_CHECKOUT = Path(__file__).parents[1] / "runbooks"


def names() -> tuple[str, ...]:
    """Return the names of the rules that have a runbook, sorted."""
    pages = (page.name for page in _folder().iterdir() if page.is_file())
    return tuple(sorted(name.removesuffix(".md") for name in pages if name.endswith(".md")))


def runbook(name: str) -> str | None:
    """Return the runbook of a rule as Markdown; None when there is none of that name."""
    return (_folder() / f"{name}.md").read_text(encoding="utf-8") if name in names() else None


def _folder() -> Traversable:
    shipped = files("lastgood_alerts") / "runbooks"
    return shipped if shipped.is_dir() else _CHECKOUT
