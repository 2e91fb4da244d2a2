"""Render the table as a ``PrometheusRule`` for the Prometheus operator."""

from __future__ import annotations

from lastgood_alerts.prometheus import CONSOLE_URL, GENERATED, rule_groups
from lastgood_alerts.yaml_text import yaml_text


def prometheus_rule_yaml(*, console_url: str = CONSOLE_URL) -> str:
    """Return the manifest. Add the labels that your Prometheus selects rules by, such as ``release``."""
    return yaml_text(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "lastgood", "labels": {"app.kubernetes.io/name": "lastgood"}},
            "spec": {"groups": rule_groups(console_url=console_url)},
        },
        GENERATED,
    )
