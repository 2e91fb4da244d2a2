"""Print the alert rules for Prometheus, Kubernetes or Grafana: ``lastgood rules``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lastgood.errors import ConfigError
from lastgood_alerts import grafana_files, kubernetes, prometheus
from lastgood_alerts.grafana import DATASOURCE_UID
from lastgood_alerts.prometheus import CONSOLE_URL
from lastgood_console.addresses import web_address

_FORMATS: Final[dict[str, Callable[[str, str, bool], str]]] = {
    "prometheus": lambda console, *_: prometheus.rules_yaml(console_url=console),
    "kubernetes": lambda console, *_: kubernetes.prometheus_rule_yaml(console_url=console),
    "grafana": lambda console, uid, recorded: grafana_files.rules_file(
        console_url=console, datasource_uid=uid, recorded=recorded
    ),
    "recordings": lambda *_: prometheus.recordings_yaml(),
}


def main(arguments: list[str]) -> int:
    """Run ``lastgood rules``. Returns 0."""
    options = _parser().parse_args(arguments)
    console = web_address("--console-url", options.console_url, CONSOLE_URL)
    text = _FORMATS[options.format](console, options.datasource_uid, options.recorded)
    if options.output is None:
        sys.stdout.write(text)
    else:
        _write(options.output, text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lastgood rules", description="Print the alert rules, with links to your console in every alert."
    )
    parser.add_argument(
        "--format",
        choices=[*_FORMATS],
        default="prometheus",
        help="a rule file, a PrometheusRule, a file for Grafana's provisioning, or a rule file of the recordings alone "
        "(default: prometheus)",
    )
    parser.add_argument(
        "--console-url",
        default=CONSOLE_URL,
        metavar="URL",
        help=f"where a browser finds the console (default: {CONSOLE_URL})",
    )
    parser.add_argument(
        "--datasource-uid",
        default=DATASOURCE_UID,
        metavar="UID",
        help=f"the Prometheus data source in Grafana (default: {DATASOURCE_UID})",
    )
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="let Grafana's rules read what Prometheus records (--format recordings), as large fleets need",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="where it goes (default: standard output)")
    return parser


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"--output {path}: {problem.strerror}; give a file in a directory that exists") from problem
