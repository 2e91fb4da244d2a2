"""Run a page script by Streamlit's AppTest on states that a test gives, and read what it shows as text."""

from __future__ import annotations

import html
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest
from tests.app.test_store import FakeLedger

from lastgood.state import RunState
from lastgood_console.alerts.fleet import FleetAlerts
from lastgood_console.components.command import copy_script
from lastgood_console.store import Store, use

NOW = 1_795_921_082.0  # 2026-11-29T02:58:02Z


def open_page(
    *found: RunState, page: str = "", path: Path | None = None, fleet: FleetAlerts | None = None, **params: str
) -> AppTest:
    """Return the router's page after one run of its script. ``page``: "incident", or the overview."""
    ledger = FakeLedger(*found, path=path)
    store = use(Store(ledger, fleet=fleet, places=(Path("runs"),), clock=lambda: NOW))
    store.refresh()
    ledger.last_read_at = NOW - 4
    store.publish()
    app = AppTest.from_file(str(files("lastgood_console") / "app.py"), default_timeout=30)
    if page:
        app.switch_page(f"views/{page}.py")
    for name, value in params.items():
        app.query_params[name] = value
    return app.run()


def shown(app: AppTest) -> str:
    """Return everything that the page says, without markup, in one line; without the switch in its head."""
    assert not app.exception, app.exception
    said = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", _body(app.main)))).strip()
    return said.removeprefix("Pause refresh").lstrip()


def _body(element: Any) -> str:
    children = getattr(element, "children", None)
    if children:
        return " ".join(_body(child) for child in children.values())
    proto = getattr(element, "proto", None)
    parts = (str(getattr(proto, name, "")) for name in ("body", "code_text", "label") if proto is not None)
    return " ".join(part for part in parts if part != copy_script())


def markup(app: AppTest) -> str:
    """Return the HTML that the page wrote itself, without the one script that every page has."""
    found = (element.proto.body for element in app.get("html"))
    return " ".join(body for body in found if body != copy_script())
