"""Look at the environment: is every LASTGOOD_ variable known, and does its value fit?"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import Final

from lastgood.config import Config, load
from lastgood.errors import ConfigError
from lastgood_console.doctor.item import Item, fail, ok

PREFIX: Final = "LASTGOOD_"
OTHERS: Final = (
    "LASTGOOD_RUNS", "LASTGOOD_TOKEN", "LASTGOOD_WEBHOOK_SECRET", "LASTGOOD_PROMETHEUS",
    *(f"LASTGOOD_PROMETHEUS_{name}" for name in ("USER", "PASSWORD", "TOKEN", "TENANT", "CA")),
)  # fmt: skip
"""Variables that the console and its commands read, beside the settings of ``lastgood.watch``."""


def look(environ: Mapping[str, str]) -> Iterator[Item]:
    """Judge the variables of lastgood. No value of one is ever shown but in a rule that it breaks."""
    given = sorted(name for name in environ if name.startswith(PREFIX))
    unknown = [name for name in given if name not in known()]
    for name in unknown:
        near = difflib.get_close_matches(name.removeprefix(PREFIX), [n.removeprefix(PREFIX) for n in known()], 1)
        out = f"did you mean {PREFIX}{near[0]}?" if near else "unset it, or see docs/settings.md for the names"
        yield fail("environment", f"{name} is no setting of lastgood", out)
    try:
        load({name: environ[name] for name in given})
    except ConfigError as error:
        yield fail("environment", str(error), "correct it, or unset the variable")
        return
    if not unknown:
        yield ok("environment", ", ".join(given) if given else "no LASTGOOD_ variable is set")


def known() -> tuple[str, ...]:
    """Return the names of all variables."""
    return tuple(dict.fromkeys([*(f"{PREFIX}{field.name.upper()}" for field in dataclasses.fields(Config)), *OTHERS]))
