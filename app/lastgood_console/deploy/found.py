"""Read what a Grafana holds of what we want there. Only GET requests."""

from __future__ import annotations

from typing import Final

from lastgood_console.deploy.grafana import PAGE, Grafana, GrafanaError
from lastgood_console.deploy.marks import TAG, run_tag
from lastgood_console.deploy.things import Found, Json, Wanted

FAR_FUTURE_MS: Final = 4_102_444_800_000  # 2100-01-01


def read(grafana: Grafana, wanted: Wanted, runs: tuple[str, ...]) -> Found:
    """Return what is there of what is asked for. Raises :class:`GrafanaError` when it cannot be read."""
    folder = wanted.folder["uid"]
    dashboards = {board["uid"]: grafana.dashboard(board["uid"]) for board in wanted.dashboards}
    groups = {group["title"]: grafana.rule_group(folder, group["title"]) for group in wanted.groups}
    return Found(
        folder=grafana.folder(folder) if dashboards or groups else None,
        dashboards={uid: there for uid, there in dashboards.items() if there is not None},
        rules=tuple(grafana.rules()) if groups else (),
        intervals={title: int(there.get("interval", 0)) for title, there in groups.items() if there is not None},
        contact_points=tuple(grafana.contact_points()) if wanted.contact_points else (),
        policy=grafana.policy() if wanted.route is not None else {},
        annotations=tuple(mark for run in runs for mark in _annotations(grafana, run)),
    )


def _annotations(grafana: Grafana, run: str) -> list[Json]:
    """Return our annotations of a run, page by page from the newest back."""
    found: dict[int, Json] = {}
    until = FAR_FUTURE_MS
    while True:
        page = grafana.annotations([TAG, run_tag(run)], until)
        new = [mark for mark in page if mark.get("id") not in found]
        found |= {int(mark.get("id", 0)): mark for mark in new}
        if len(page) < PAGE or not new:
            return list(found.values())
        until = min(int(mark.get("time", 0)) for mark in page)


def check_data_source(grafana: Grafana, uid: str) -> str:
    """Return a warning about the data source, or "". Raises :class:`GrafanaError` when there is none.

    A token may deploy without being allowed to read data sources; then nothing can be said.
    """
    try:
        there = grafana.data_source(uid)
    except GrafanaError as error:
        if error.status == 403:
            return f"the token may not read data sources, so whether there is one with the uid {uid} is not known"
        raise
    if there is None:
        raise GrafanaError(
            f"there is no data source with the uid {uid}: every panel and rule would fail; "
            "give the uid of the Prometheus data source with --datasource-uid"
        )
    kind = str(there.get("type", ""))
    return "" if "prometheus" in kind else f"data source {uid} is of type {kind}, and the rules are written in PromQL"
