"""Find the servers' programs: ``lastgood stack`` starts them, ``lastgood doctor`` says whether it could."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Final

from lastgood.errors import ConfigError

Which = Callable[[str], str | None]
"""Name of a program -> its path; None when there is none."""

PROGRAMS: Final = {"prometheus": ("prometheus",), "alertmanager": ("alertmanager", "prometheus-alertmanager")}
"""Part -> the names under which a machine may have its program."""
PACKAGES: Final = {"prometheus": "prometheus", "alertmanager": "prometheus-alertmanager"}
"""Part -> the package of Debian and Ubuntu that brings its program."""


def look_for_programs(which: Which = shutil.which) -> dict[str, str | None]:
    """Return part -> its program; None where this machine has none."""
    return {part: next(filter(None, map(which, names)), None) for part, names in PROGRAMS.items()}


def find_programs(which: Which = shutil.which) -> dict[str, str]:
    """Return part -> its program. Raises :class:`ConfigError` that says what to install."""
    found = look_for_programs(which)
    missing = [" or ".join(PROGRAMS[part]) for part, path in found.items() if path is None]
    if missing:
        raise ConfigError(
            f"not found on PATH: {', '.join(missing)}. "
            f"Debian and Ubuntu have them: sudo apt-get install {' '.join(PACKAGES.values())}"
        )
    return {part: path for part, path in found.items() if path}
