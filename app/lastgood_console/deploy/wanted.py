"""Say what should be in Grafana: the generated dashboards, the table of rules, the contact point and the route to it.

The generated dashboards name the default data source and the default console; both are replaced by those given. The
notification policy is one tree for the whole organization, and most of it is none of our business: from ours comes a
single route, for our alerts alone, which lets alerts pass on to the routes behind it (``continue``).
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

from lastgood import __version__
from lastgood_alerts import grafana_api
from lastgood_alerts.grafana import DATASOURCE_UID
from lastgood_alerts.grafana import FOLDER as FOLDER_NAME
from lastgood_alerts.prometheus import COMPONENT, CONSOLE_URL
from lastgood_console.deploy.options import Options
from lastgood_console.deploy.things import Json, Wanted

FOLDER: Final[Json] = {"uid": FOLDER_NAME, "title": FOLDER_NAME}
MATCHERS: Final = (("component", "=", COMPONENT),)
"""A label of every rule of ours. The folder's title would do only until somebody moves the folder."""


def wanted(options: Options, annotations: list[Json]) -> Wanted:
    """Return what should be there. ``annotations`` are those of the runs that were asked for."""
    console = options.console_url
    rules = grafana_api.rule_groups(console_url=console, datasource_uid=options.data_source, recorded=options.recorded)
    points = grafana_api.contact_points(
        webhook_url=f"{options.webhook_base}/api/alerts", token=options.console_token, secret=options.console_secret
    )
    boards, alerts = "dashboards" in options.parts, "alerts" in options.parts
    return Wanted(
        folder=FOLDER,
        dashboards=tuple(dashboards(console, options.data_source)) if boards else (),
        groups=tuple(rules) if alerts else (),
        contact_points=tuple(points) if alerts else (),
        route=route(grafana_api.policy()) if alerts and options.policy == "add" else None,
        annotations=tuple(annotations),
        renew_secrets=options.renew_token,
        message=f"lastgood {__version__}",
    )


def dashboards(console_url: str, data_source: str) -> list[Json]:
    """Return the dashboards, in the order of their uids, for this console and data source."""
    replaced = {CONSOLE_URL: console_url, DATASOURCE_UID: data_source}
    place = files("lastgood_dashboards") / "generated"
    texts = [item.read_text(encoding="utf-8") for item in place.iterdir() if item.name.endswith(".json")]
    found = [_replaced(json.loads(text), replaced) for text in texts]
    return sorted(found, key=lambda dashboard: str(dashboard["uid"]))


def _replaced(value: Any, by: dict[str, str]) -> Any:
    """Return a JSON value with whole texts replaced."""
    if isinstance(value, dict):
        return {key: _replaced(item, by) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, by) for item in value]
    return by.get(value, value) if isinstance(value, str) else value


def route(tree: Json) -> Json:
    """Return the policy of our own, which is a whole tree, as one route of somebody else's tree."""
    return {**tree, "object_matchers": [list(matcher) for matcher in MATCHERS], "continue": True}
