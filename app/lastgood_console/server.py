"""Run the console: pages, HTTP routes and the ledger in one process, on one port.

``lastgood console [RUNS...]``. Streamlit calls a statistics host unless told not to, and ignores its environment
variables under ``st.App``, so every setting that matters is passed to ``App.run``.
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lastgood.admission import is_loopback
from lastgood.errors import ConfigError
from lastgood.ingest import EventIntake
from lastgood.ledger import Ledger, default_state_dir
from lastgood.serve import add_arguments, run_paths, warn
from lastgood_console.alerts.fleet import FleetAlerts
from lastgood_console.alerts.intake import AlertIntake
from lastgood_console.desk import Desk
from lastgood_console.export.tokens import ThemeName, theme
from lastgood_console.http.base_path import base_path
from lastgood_console.http.sessions import FILE, MOST_HOURS, Sessions, session_hours
from lastgood_console.people_journal import PeopleJournal
from lastgood_console.sign_in_file import check_installed, doubts, providers_of, read_auth
from lastgood_console.sources.both import RunsFromMetrics
from lastgood_console.sources.client import Credentials, PrometheusClient
from lastgood_console.sources.trends import Trends
from lastgood_console.store import Store, use
from lastgood_console.warming import warm_up

if TYPE_CHECKING:
    from lastgood_console.http.handlers import Served

PORTS_TO_TRY: Final = 50


def main(args: Sequence[str]) -> int:
    """Run ``lastgood console`` until Ctrl-C. Returns 0, or 2 when it cannot serve."""
    options = _parser().parse_args(list(args))
    if remote := [path for path in options.runs if "://" in path]:
        return _cannot(f"{remote[0]} is an object store; the runs must lie on a mounted POSIX file system")
    try:
        port = free_port(options.host, options.port)
    except OSError as problem:
        return _cannot(f"cannot listen on {options.host}:{options.port} ({problem}): choose another --port or --host")
    token, paths = os.environ.get("LASTGOOD_TOKEN") or None, run_paths(options.runs)
    try:
        signs_in = sign_in_with(options.sign_in, options.base_path)
        served, shown = open_all(options, paths, token, signs_in)
    except ConfigError as problem:
        return _cannot(str(problem))
    announce(options.host, port, options.port, paths, token, base=options.base_path, signs_in=signs_in)
    if shown:
        print(f"trends, and runs without a run directory, come from {shown}", flush=True)
    _serve(served, streamlit_config(options.host, port, options.base_path, options.sign_in))
    return 0


def open_all(
    options: argparse.Namespace, paths: Sequence[Path], token: str | None, signs_in: bool
) -> tuple[Served, str]:
    """Open the store, what feeds it and who may read it. Return it with the address of the metrics server, if any.

    Raises :class:`ConfigError` when that address is wrong.
    """
    from lastgood_console.http.access import Access
    from lastgood_console.http.handlers import Served

    state_dir = options.state or default_state_dir(paths)
    fleet = FleetAlerts(state_dir)
    store = open_store(paths, state_dir, fleet, token)
    shown = remember_by(store, options.prometheus or os.environ.get("LASTGOOD_PROMETHEUS", ""))
    taken_in = intakes(store, fleet, state_dir, token)
    access = Access(token, Sessions(state_dir / FILE, options.session_hours) if signs_in else None)
    return Served(store, *taken_in, access, options.base_path), shown


def sign_in_with(file: Path | None, base: str) -> bool:
    """Ask visitors to sign in when there is a file that says with whom. Raises :class:`ConfigError`."""
    if file is None:
        return False
    auth = read_auth(file)
    providers = providers_of(auth, base)
    check_installed()
    for doubt in doubts(file, auth):
        warn(doubt)
    from lastgood_console.sign_in import require

    require(providers)
    return True


def open_store(paths: Sequence[Path], state_dir: Path, fleet: FleetAlerts, token: str | None = None) -> Store:
    """Open the process's store on these run directories, and the desk where its visitors act."""
    store = Store(Ledger(paths, state_dir=state_dir), fleet=fleet, places=tuple(paths))
    store.desk = Desk(store, PeopleJournal(state_dir), token)
    return use(store)


def remember_by(store: Store, url: str, environ: Mapping[str, str] = os.environ) -> str:
    """Let a store ask a metrics server for trends and for runs without a journal; without an address it asks none.

    Return the address as it may be shown. Raises :class:`ConfigError` for a wrong one, or for wrong credentials.
    """
    if not url:
        return ""
    client = PrometheusClient(url, Credentials.from_environment(environ))
    store.metrics = RunsFromMetrics(client, lambda: store.ledger.runs().keys(), store.clock, store.publish)
    store.trends = Trends(client, store.clock).of
    return client.shown


def intakes(
    store: Store, fleet: FleetAlerts, state_dir: Path, token: str | None, environ: Mapping[str, str] = os.environ
) -> tuple[EventIntake, AlertIntake]:
    """Return what takes posted events in, and what takes alerts in."""
    assert isinstance(store.ledger, Ledger)
    events = EventIntake(state_dir, store.ledger, token)
    secret = environ.get("LASTGOOD_WEBHOOK_SECRET") or None
    return events, AlertIntake(events.posted, fleet, store.ledger, token=token, secret=secret)


def _serve(served: Served, config: Mapping[str, Any]) -> None:
    import streamlit as st
    from starlette.middleware import Middleware

    from lastgood_console.http.at_once import answer_at_once
    from lastgood_console.http.bundle import Bundle, frontend_files
    from lastgood_console.http.door import Door
    from lastgood_console.http.front import Front
    from lastgood_console.http.routes import application

    before = [Middleware(Front, api=application(served), access=served.access, base=served.base)]
    if sessions := served.access.sessions:
        before.append(Middleware(Door, sessions=sessions, base=served.base))
    before.append(Middleware(Bundle, files=frontend_files(), base=served.base))
    app = st.App(str(files("lastgood_console") / "app.py"), middleware=before)
    answer_at_once()
    served.store.start()
    warm_up(served.store, then=keep_from_collector)
    try:
        app.run(config=config)
    except KeyboardInterrupt:
        pass  # this is how a person ends it
    finally:
        served.store.stop()


def keep_from_collector() -> None:
    """Tell the collector of cycles that what is there now stays: the program, and the history of the runs.

    To walk the history of a large fleet takes a fifth of a second, in which no page is served.
    """
    gc.collect()
    gc.freeze()


def free_port(host: str, wanted: int) -> int:
    """Return the wanted port, or the next free one. Raises ``OSError`` when the host cannot be listened on."""
    last: OSError | None = None
    for port in [wanted] if wanted == 0 else range(wanted, min(65536, wanted + PORTS_TO_TRY)):
        try:
            return _bound_port(host, port)
        except PermissionError:
            raise
        except OSError as problem:
            last = problem
            if not _taken(problem):
                raise
    raise last or OSError("no port")


def _bound_port(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen()
        return int(probe.getsockname()[1])


def _taken(problem: OSError) -> bool:
    return problem.errno == errno.EADDRINUSE


def announce(
    host: str,
    port: int,
    wanted: int,
    paths: Sequence[Path],
    token: str | None,
    *,
    base: str = "",
    signs_in: bool = False,
) -> None:
    """Say where the console is, and what a person should know before opening it."""
    shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
    print(f"lastgood console reads {', '.join(map(str, paths))}: http://{shown}:{port}{base}", flush=True)
    if port != wanted and wanted:
        warn(f"port {wanted} is taken; {port} is the next free one")
    if missing := [str(path) for path in paths if not path.exists()]:
        warn(f"{', '.join(missing)} does not exist yet; runs that appear there will be found")
    if not token and not is_loopback(host):
        reads = "who signs in reads" if signs_in else "anyone there reads"
        warn(f"open to other machines without LASTGOOD_TOKEN: {reads} the runs; nobody there can post events")


def streamlit_config(host: str, port: int, base: str = "", secrets: Path | None = None) -> dict[str, Any]:
    """Return Streamlit's settings: address, privacy, and the look's theme from the token table.

    ``secrets``: the file that turns sign-in on. None: none is read, also not one of another app in this folder.
    """
    config: dict[str, Any] = {
        "server.baseUrlPath": base.strip("/"),
        "secrets.files": [str(secrets)] if secrets else [],
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "runner.postScriptGC": False,  # at every tick of every visitor; the collector comes by itself when it is due
        "logger.hideWelcomeMessage": True,
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "theme.baseFontSize": 14,
        "theme.font": "sans-serif",
        "theme.codeFont": "monospace",
        "theme.codeFontSize": "0.857rem",
        "theme.headingFontSizes": ["1.429rem", "1.143rem", "1rem", "1rem", "0.929rem", "0.857rem"],
        "theme.headingFontWeights": [600] * 6,
        "theme.baseRadius": "3px",
        "theme.buttonRadius": "3px",
        "theme.paddingTop": "0.75rem",
        "theme.paddingBottom": "3rem",
        "theme.linkUnderline": True,
    }
    for name in ("light", "dark"):
        config |= {f"theme.{name}.{key}": value for key, value in theme_colours(name).items()}
    return config


def theme_colours(name: ThemeName) -> Mapping[str, str]:
    """Return Streamlit's theme colours from the tokens."""
    t = theme(name)
    return {
        "primaryColor": t["act"],
        "backgroundColor": t["bg"],
        "secondaryBackgroundColor": t["panel"],
        "textColor": t["ink"],
        "linkColor": t["ink"],
        "borderColor": t["border"],
        "codeBackgroundColor": t["panel"],
        "codeTextColor": t["ink"],
        "dataframeBorderColor": t["line"],
        "dataframeHeaderBackgroundColor": t["bg"],
        "dataframeHeaderTextColor": t["ink3"],
        "redColor": t["tainted"],
        "orangeColor": t["suspect"],
        "yellowColor": t["suspect"],
        "greenColor": t["trusted"],
        "blueColor": t["trusted"],
        "grayColor": t["unverified"],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lastgood console",
        description="Browse runs and incidents. On the same port: /metrics, /healthz and an HTTP API with exports, "
        "which takes events and alerts in (/api/openapi.json).",
    )
    add_arguments(parser, "when taken, the next free one is used; 0 takes any")
    prefix = "path prefix behind a reverse proxy, whether that passes it on or strips it; default: none"
    parser.add_argument("--base-path", type=base_path, default="", metavar="/PREFIX", help=prefix)
    signs = "let only people see pages who sign in, as [auth] of this file says: Streamlit's secrets.toml"
    parser.add_argument("--sign-in", type=Path, metavar="FILE", help=f"{signs}; default: nobody is asked")
    lasts = "so long a sign-in lasts, at most and by default 720, which are 30 days"
    parser.add_argument("--session-hours", type=session_hours, default=MOST_HOURS, metavar="HOURS", help=lasts)
    about = "a Prometheus, VictoriaMetrics, Thanos or Mimir: for trends, and for runs whose directory is gone"
    parser.add_argument("--prometheus", metavar="URL", help=f"{about}; default: $LASTGOOD_PROMETHEUS")
    return parser


def _cannot(text: str) -> int:
    print(f"lastgood console: {text}", file=sys.stderr)
    return 2
