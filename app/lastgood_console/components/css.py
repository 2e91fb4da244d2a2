"""Compose the style sheet: the tokens as CSS variables, then the shapes in ``assets/console.css``."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from lastgood_console.export.tokens import css_variables


@cache
def stylesheet() -> str:
    """Return the ``<style>`` element of every page. ``light-dark()`` follows Streamlit's theme menu without a rerun."""
    rules = files("lastgood_console").joinpath("assets/console.css").read_text(encoding="utf-8")
    rules = re.sub(r"/\*.*?\*/", "", rules, flags=re.S)  # the sanitizer drops a style element that holds markup
    return f"<style>.stApp {{ {css_variables()} }}\n{rules}</style>"


def streamlit_selectors() -> tuple[str, ...]:
    """Return the names of Streamlit's own that the style sheet relies on, as CSS selectors."""
    return tuple(sorted(set(re.findall(r'\[data-testid="[^"]+"\]', stylesheet()))))
