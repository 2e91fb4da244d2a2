"""Warn without ever raising: a job that turns warnings into errors must not be stopped by ours."""

from __future__ import annotations

import sys
import warnings


def warn(text: str, stacklevel: int = 3) -> None:
    """Issue a RuntimeWarning that starts with "lastgood: "; on stderr where warnings are errors."""
    try:
        warnings.warn(f"lastgood: {text}", RuntimeWarning, stacklevel=stacklevel)
    except RuntimeWarning:
        print(f"lastgood: {text}", file=sys.stderr, flush=True)
