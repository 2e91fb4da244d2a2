"""Grafana dashboards as code; the JSON they make is committed and ships with the package.

>>> from lastgood_dashboards import NAMES, dashboard
>>> dashboard("run", console_url="https://console.example")["uid"]
'lastgood-run'
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

from lastgood_dashboards.links import CONSOLE_URL, DATA_SOURCE_UID, UIDS

NAMES: Final = tuple(UIDS)

__all__ = ["CONSOLE_URL", "DATA_SOURCE_UID", "NAMES", "UIDS", "dashboard"]


def dashboard(name: str, *, console_url: str = CONSOLE_URL, datasource_uid: str = DATA_SOURCE_UID) -> dict[str, Any]:
    """Return one dashboard as Grafana takes it, with the given defaults of its console and data source variables.

    ``name`` is one of ``NAMES``. Raises ``ValueError`` for another.
    """
    if name not in NAMES:
        raise ValueError(f"no dashboard is called {name!r}: there are {', '.join(NAMES)}")
    text = (files("lastgood_dashboards") / "generated" / f"{name}.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    defaults = {"console": console_url.rstrip("/"), "datasource": datasource_uid}
    for variable in content["templating"]["list"]:
        if value := defaults.get(variable["name"]):
            variable["current"] = {"selected": True, "text": value, "value": value}
            if variable["type"] == "textbox":
                variable["query"] = value
    return content
