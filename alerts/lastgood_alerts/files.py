"""Name every file that is made from the table and ships in the wheel under ``generated/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lastgood_alerts import grafana_files, kubernetes, prometheus, server_configs
from lastgood_alerts.prometheus import GENERATED

COMPOSE_CONSOLE: Final = "http://console:8490"
"""Where the other containers find the console."""
TOKEN_FILE: Final = "/run/secrets/lastgood_token"
"""The token as docker compose mounts it."""


def _compose_prometheus() -> str:
    return server_configs.prometheus_config(
        console_url=COMPOSE_CONSOLE,
        alertmanagers=("alertmanager:9093",),
        rule_files=("/etc/prometheus/lastgood.rules.yml",),
        token_file=TOKEN_FILE,
    )


def _compose_alertmanager() -> str:
    return server_configs.alertmanager_config(console_url=COMPOSE_CONSOLE, token_file=TOKEN_FILE)


FILES: Final[Mapping[str, Callable[[], str]]] = {
    "prometheus/lastgood.rules.yml": prometheus.rules_yaml,
    "kubernetes/prometheusrule.yaml": kubernetes.prometheus_rule_yaml,
    "grafana/alerting/rules.yaml": grafana_files.rules_file,
    "grafana/alerting/contact-points.yaml": lambda: grafana_files.contact_points_file(
        webhook_url=f"{COMPOSE_CONSOLE}/api/alerts"
    ),
    "grafana/alerting/policies.yaml": grafana_files.policies_file,
    "compose/prometheus.yml": _compose_prometheus,
    "compose/alertmanager.yml": _compose_alertmanager,
}
"""Path under the folder -> its text."""


def write_files(folder: Path) -> None:
    """Write every file under ``folder``, and delete those that are not made any more."""
    for path in [*folder.rglob("*.y*ml")]:
        if path.relative_to(folder).as_posix() not in FILES and GENERATED in path.read_text(encoding="utf-8"):
            path.unlink()
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(), encoding="utf-8")
