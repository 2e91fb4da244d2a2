"""Try what lastgood listens on and talks to: ports, the console that ranks post to, a Prometheus."""

from __future__ import annotations

import errno
import http.client
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final
from urllib.parse import urlencode

from lastgood.endpoint import BASE_PORT, TRIES
from lastgood.errors import ConfigError
from lastgood.http_address import HttpAddress, is_host
from lastgood.serve import DEFAULT_PORT
from lastgood_console.deadline import within
from lastgood_console.doctor.answer import Answer, short
from lastgood_console.doctor.item import Item, fail, ok, warn
from lastgood_console.doctor.prometheus import prometheus_items

SECONDS: Final = 3.0
MOST_BYTES: Final = 32 << 20
"""Of an answer. The rules of a Prometheus come with all their alerts."""

Fetch = Callable[[str, str, str, Mapping[str, str], bytes | None], Answer]
"""(base address, path with query, method, headers, body) -> answer."""


# --- probes ----------------------------------------------------------------------------------------------------------


def fetch(url: str, path: str, method: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
    """Send one request, and wait ``SECONDS`` for all of its answer. Raises :class:`ConfigError` for no address."""
    address = HttpAddress(url, "address", "http://prometheus.example:9090")
    if address.has_login:
        raise ConfigError(f"address {address.shown} holds a name or a password, which would be shown")
    try:
        return within(SECONDS, lambda: _asked(address, path, method, headers, body))
    except TimeoutError:
        return Answer(0, b"", f"no whole answer within {SECONDS:g} s")
    except (OSError, http.client.HTTPException) as error:
        said = (error.strerror if isinstance(error, OSError) else "") or str(error)
        return Answer(0, b"", short(said) or type(error).__name__)


def _asked(address: HttpAddress, path: str, method: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
    connection, began = address.connection(SECONDS), time.time()
    with closing(connection):
        connection.request(method, address.path.rstrip("/") + path, body, dict(headers))
        answer = connection.getresponse()
        content = answer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        return Answer(0, b"", f"its answer is longer than {MOST_BYTES >> 20} MiB")
    return Answer(answer.status, content, "", began, time.time())


def taken(port: int, host: str) -> str:
    """Return why a port cannot be listened on; empty when it can."""
    if host and not is_host(host):
        return "no host has such a name"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            return "taken" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
    return ""


def look(environ: Mapping[str, str], prometheus: str | None, get: Fetch = fetch) -> Iterator[Item]:
    """Try everything and yield what there is to say."""
    base = environ.get("LASTGOOD_METRICS_PORT", "")
    first = int(base) if base.isdecimal() else BASE_PORT
    host = environ.get("LASTGOOD_METRICS_ADDRESS", "")
    yield rank_port_item(first, host, lambda port: taken(port, host))
    yield console_port_item(taken(DEFAULT_PORT, "127.0.0.1"), lambda: _health(f"http://127.0.0.1:{DEFAULT_PORT}", get))
    if url := environ.get("LASTGOOD_CONSOLE_URL", ""):
        yield from _guarded("console", lambda: _console(url, environ.get("LASTGOOD_TOKEN", ""), get))
    if prometheus:
        yield from _guarded("prometheus", lambda: _prometheus(prometheus, get))


def _guarded(name: str, items: Callable[[], list[Item]]) -> list[Item]:
    try:
        return items()
    except ConfigError as error:
        return [fail(name, str(error), "give an address that starts with http:// or https://")]


def _health(url: str, get: Fetch) -> Answer:
    return get(url, "/healthz", "GET", {}, None)


def _console(url: str, token: str, get: Fetch) -> list[Item]:
    health = _health(url, get)
    if not is_ours(health):
        return list(console_items(url, health, None, bool(token)))
    headers = {"Content-Type": "application/cloudevents-batch+json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    return list(console_items(url, health, get(url, "/api/events", "POST", headers, b"[]"), bool(token)))


def _prometheus(url: str, get: Fetch) -> list[Item]:
    def query(text: str) -> Answer:
        return get(url, f"/api/v1/query?{urlencode({'query': text})}", "GET", {}, None)

    clock = query("time()")
    if clock.status != 200:
        return [unreachable("prometheus", url, clock)]
    rules = get(url, "/api/v1/rules?type=alert", "GET", {}, None)
    ranks, runs = query("count(lastgood_rank_info)"), query("count(lastgood_run_active)")
    return list(prometheus_items(url, clock, ranks, runs, rules))


# --- decisions -------------------------------------------------------------------------------------------------------


def rank_port_item(first: int, host: str, taken: Callable[[int], str]) -> Item:
    """Judge the ports that ranks serve their metrics on."""
    name, shown = "rank ports", host or "all interfaces"
    if first == 0 and not taken(0):
        return ok(name, f"any free one on {shown}")
    for port in range(first, min(first + TRIES, 65536)):
        reason = taken(port)
        if not reason:
            before = f"; {first} to {port - 1} taken" if port > first else ""
            return ok(name, f"free from {port} on {shown}{before}")
        if reason != "taken":
            return fail(name, f"{shown}: {reason}", "give an address of this machine (LASTGOOD_METRICS_ADDRESS) and "
                        "ports above 1023 (LASTGOOD_METRICS_PORT)")  # fmt: skip
    return fail(name, f"none of {first} to {min(first + TRIES, 65536) - 1} is free", "set LASTGOOD_METRICS_PORT")


def console_port_item(reason: str, health: Callable[[], Answer]) -> Item:
    """Judge the console's usual port: free, or one of ours answers there."""
    name = "console port"
    if not reason:
        return ok(name, f"{DEFAULT_PORT} is free")
    if reason == "taken" and is_ours(health()):
        return ok(name, f"{DEFAULT_PORT}: lastgood answers there")
    return warn(name, f"{DEFAULT_PORT}: {reason}", "lastgood console takes the next free one, or give it --port")


def is_ours(health: Answer) -> bool:
    """Tell whether an answer to ``/healthz`` is lastgood's."""
    match health.data():
        case {"version": str(), "runs": int(), "last_read_age_seconds": _}:
            return True
    return False


def unreachable(name: str, url: str, answer: Answer) -> Item:
    """Say that an address does not answer as it should."""
    says = f"{url}: {answer.problem}" if not answer.status else f"{url} answers with status {answer.status}"
    return fail(name, says, "is it running, and can this machine reach it (address, port, firewall, proxy)?")


def console_items(url: str, health: Answer, posted: Answer | None, has_token: bool) -> Iterator[Item]:
    """Judge the console that ranks post to (LASTGOOD_CONSOLE_URL), and whether it takes their events."""
    if not is_ours(health):
        if health.status == 200:
            yield fail("console", f"{url} answers, but is not lastgood", "set LASTGOOD_CONSOLE_URL to its base address")
        else:
            yield unreachable("console", url, health)
        return
    about = health.data()
    if health.status == 200:
        yield ok("console", f"{url}: version {short(about['version'])}, {about['runs']} runs")
    else:
        yield warn("console", f"{url} has not read the journals for a minute", "look at its output: is the run "
                   "directory there?")  # fmt: skip
    if posted is not None:
        yield _token_item(posted, has_token)


def _token_item(posted: Answer, has_token: bool) -> Item:
    shown = "with LASTGOOD_TOKEN" if has_token else "without a token"
    if posted.status == 200:
        return ok("console token", f"events are taken {shown}")
    if posted.status == 401:
        return fail("console token", f"events are refused {shown}", "set the same LASTGOOD_TOKEN here and where the "
                    "console runs")  # fmt: skip
    reason = posted.problem or f"status {posted.status}"
    match posted.data():
        case {"error": str(said)} if said:
            reason = short(said)
    return fail("console token", f"events are refused: {reason}", "look at the console's output")
