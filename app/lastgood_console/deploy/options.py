"""Read the command line of ``lastgood grafana deploy``.

A token is best kept in a file or in the environment: a command line is seen by every process of the machine. No
message, not even about a wrong token, contains one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lastgood.errors import LastgoodError
from lastgood_alerts.grafana import DATASOURCE_UID
from lastgood_alerts.prometheus import CONSOLE_URL
from lastgood_console.addresses import web_address
from lastgood_console.run_selection import RUN_HELP

DEFAULT_TIMEOUT_SECONDS: Final = 15.0
PARTS: Final = ("dashboards", "alerts", "annotations")


class UsageError(LastgoodError):
    """The command line cannot be used as it is: says the value, the rule and the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one deployment does."""

    url: str
    token: str = field(repr=False)
    console_url: str = CONSOLE_URL
    """Where people find the console; links in alerts and dashboards lead there."""
    webhook_base: str = CONSOLE_URL
    """Where Grafana finds the console."""
    console_token: str = field(default="", repr=False)
    """What Grafana shows the console when it posts an alert; empty: nothing."""
    console_secret: str = field(default="", repr=False)
    """What Grafana signs alerts with; empty: not at all."""
    renew_token: bool = False
    recorded: bool = False
    data_source: str = DATASOURCE_UID
    policy: str = "add"
    parts: frozenset[str] = frozenset(PARTS)
    annotations: str | None = None
    dry_run: bool = False
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


def parse(arguments: list[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Return the options. Raises :class:`UsageError`, or ``ConfigError`` for an address."""
    given = parser().parse_args(arguments)
    parts = frozenset(given.only or PARTS)
    if parts == {"annotations"} and given.annotations is None:
        raise UsageError("--only annotations: say of which runs with --annotations RUNS")
    console_token = environ.get("LASTGOOD_TOKEN", "")
    if given.console_token_file is not None:
        console_token = _read_token(given.console_token_file)
    return Options(
        url=_address("--url", given.url),
        token=_token(given.token, given.token_file, environ),
        console_url=_address("--console-url", given.console_url),
        webhook_base=_address("--webhook-url", given.webhook_url or given.console_url),
        console_token=_clean("the console's token", console_token) if console_token else "",
        console_secret=environ.get("LASTGOOD_WEBHOOK_SECRET", ""),
        renew_token=given.renew_token,
        recorded=given.recorded,
        data_source=given.datasource_uid,
        policy=given.policy,
        parts=parts,
        annotations=given.annotations if "annotations" in parts else None,
        dry_run=given.dry_run,
        timeout_seconds=given.timeout,
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``lastgood grafana``."""
    top = argparse.ArgumentParser(prog="lastgood grafana", description="Work with a Grafana that is already there.")
    actions = top.add_subparsers(dest="action", required=True, metavar="deploy")
    deploy = actions.add_parser(
        "deploy",
        help="put dashboards, alert rules and annotations into it",
        description="Put folder, dashboards, alert rules, contact point, notification route and, if asked, the "
        "annotations of runs into a Grafana. What is there already is left alone, so that a second time changes "
        "nothing. Needs the token of a service account with the role Admin.",
    )
    add = deploy.add_argument
    add("--url", required=True, metavar="URL", help="address of Grafana, with its path prefix if it has one")
    add("--token-file", type=Path, metavar="FILE", help="file with the token; default: $GRAFANA_TOKEN")
    add("--token", metavar="TOKEN", help="the token itself; every process of this machine can see it")
    add("--console-url", default=CONSOLE_URL, metavar="URL",
        help="where people find the console; default: %(default)s")  # fmt: skip
    add("--webhook-url", metavar="URL", help="where Grafana finds the console, when that differs from --console-url")
    add("--console-token-file", type=Path, metavar="FILE",
        help="file with the console's token, which Grafana shows it; default: $LASTGOOD_TOKEN, else none. Alerts are "
        "signed when $LASTGOOD_WEBHOOK_SECRET is set")  # fmt: skip
    add(
        "--renew-token",
        action="store_true",
        help="send the console's token and secret again: Grafana does not show the old",
    )
    add("--datasource-uid", default=DATASOURCE_UID, metavar="UID",
        help="uid of the Prometheus data source; default: %(default)s")  # fmt: skip
    add("--recorded", action="store_true",
        help="let the rules read what Prometheus records, as large fleets need; the recordings come from "
        "`lastgood rules`")  # fmt: skip
    add("--only", action="append", choices=PARTS, metavar="PART",
        help="dashboards, alerts (rules, contact point, route) or annotations; may be given again; "
        "default: all")  # fmt: skip
    add("--policy", choices=("add", "keep"), default="add",
        help="add: put our route into the notification policy, and nothing else; keep: leave it alone; "
        "default: %(default)s")  # fmt: skip
    add(
        "--annotations", metavar="RUNS", help=f"annotate the findings and saves of these runs: {RUN_HELP.split(';')[0]}"
    )
    add("--timeout", type=_seconds, default=DEFAULT_TIMEOUT_SECONDS, metavar="SECONDS",
        help="how long one answer may take; default: %(default)s")  # fmt: skip
    add("--dry-run", action="store_true", help="show what would be done, and only read")
    return top


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: give a number of seconds above 0")
    return value


def _address(option: str, text: str) -> str:
    return web_address(option, text, "https://grafana.example.org or http://host:3000/path")


def _token(given: str | None, file: Path | None, environ: Mapping[str, str]) -> str:
    if given is not None and file is not None:
        raise UsageError("give --token or --token-file, not both")
    if file is not None:
        return _read_token(file)
    token = environ.get("GRAFANA_TOKEN", "") if given is None else given
    if not token.strip():
        raise UsageError(
            "no token: make a service account in Grafana (Administration, Users and access), and give its token with "
            "--token-file or GRAFANA_TOKEN"
        )
    return _clean("the token", token)


def _read_token(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "not a text file"
        raise UsageError(f"cannot read the token from {file} ({why})") from None
    return _clean(f"the token in {file}", text)


def _clean(what: str, text: str) -> str:
    """Return a token without the line break behind it. A header takes printable ASCII without spaces."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{what} is empty or holds characters that no token has")
    return token
