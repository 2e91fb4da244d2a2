"""Draw a command to copy: code with a visible button, never hidden in a button.

Streamlit's own code block loads a highlighter of 1.6 MB for it, which every first visit of an incident would wait for.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from lastgood_console.characters import escape


def command_html(command: str) -> str:
    """Return a command with its button. :func:`copy_script` must be on the page."""
    button = '<button type="button" class="lg-copy" aria-label="Copy to clipboard" title="Copy to clipboard"></button>'
    return f'<div class="lg-code"><code>{escape(command)}</code>{button}</div>'


@cache
def copy_script() -> str:
    """Return the ``<script>`` element that makes the buttons work: text of our own, and nothing else in it."""
    return f"<script>{files('lastgood_console').joinpath('assets/copy.js').read_text(encoding='utf-8')}</script>"
