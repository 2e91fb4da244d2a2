"""Name the formats of an incident: what command line, routes and page offer.

All are made from the incident document alone, so whatever one shows is in the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lastgood_console.export import csv, document, html, markdown


@dataclass(frozen=True, slots=True)
class Format:
    """One format. ``name``: for people; ``holds``: what its file is; ``content_type``: of HTTP."""

    name: str
    holds: str
    content_type: str
    render: Callable[[Mapping[str, Any]], str]


FORMATS: Final[Mapping[str, Format]] = {
    "json": Format("JSON", "incident", "application/json", document.dumps),
    "csv": Format("CSV", "timeline", "text/csv; charset=utf-8; header=present", csv.render),
    "md": Format("Markdown", "post-mortem", "text/markdown; charset=utf-8", markdown.render),
    "html": Format("HTML", "report", "text/html; charset=utf-8", html.render),
}
"""File extension -> format."""


def render(content: Mapping[str, Any], form: str) -> str:
    """Return an incident document in one of :data:`FORMATS`."""
    return FORMATS[form].render(content)
