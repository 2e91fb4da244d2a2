"""Answer the operations, on one store. The name of a handler is that of its operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lastgood.ingest import MAX_BODY_BYTES, EventIntake
from lastgood.ledger import Ledger
from lastgood.run_metrics import RunMetrics
from lastgood.serve import health, warn
from lastgood.state import RunState
from lastgood.targets import Discovery
from lastgood_console.alerts.intake import MAX_BODY_BYTES as MAX_ALERT_BYTES
from lastgood_console.alerts.intake import AlertIntake
from lastgood_console.cache import devices
from lastgood_console.components.devices import matching
from lastgood_console.export.document import to_document
from lastgood_console.export.formats import FORMATS, render
from lastgood_console.http import answers
from lastgood_console.http.access import Access
from lastgood_console.http.openapi import openapi
from lastgood_console.http.responses import SAFE, as_json, problem
from lastgood_console.store import Store

REPORT_POLICY: Final = {"Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'"}
"""A report is opened on the console's own address: whatever stands in it, it may run nothing there."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the handlers answer from. ``base``: the path prefix, "" or "/prefix"."""

    store: Store
    events: EventIntake
    alerts: AlertIntake
    access: Access = field(default_factory=Access)
    base: str = ""


class Handlers:
    """Handle what the routes have admitted. ``query``: the parameters of the query, read and checked."""

    def __init__(self, served: Served) -> None:
        self._served, self._store = served, served.store
        self._registry = CollectorRegistry()
        self._registry.register(RunMetrics(self._ledger))
        self._discovery = Discovery(self._ledger, warn)

    @property
    def _ledger(self) -> Ledger:
        assert isinstance(self._store.ledger, Ledger)
        return self._store.ledger

    async def healthz(self, request: Request, query: Mapping[str, Any]) -> Response:
        """Tell whether the runs are read."""
        status, answer = health(self._ledger, self._store.clock())
        return as_json(answer, status)

    async def metrics(self, request: Request, query: Mapping[str, Any]) -> Response:
        """Answer a scrape."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        body = await run_in_threadpool(encode, self._registry)
        return Response(body, headers={"Content-Type": content_type, **SAFE})

    async def openapi(self, request: Request, query: Mapping[str, Any]) -> Response:
        """Describe all of this."""
        access = self._served.access
        return as_json(openapi(self._served.base, token=access.token is not None, sign_in=access.sign_in))

    async def list_runs(self, request: Request, query: Mapping[str, Any]) -> Response:
        """List runs and their incidents."""
        base, snapshot = self._served.base, self._store.snapshot()
        page = answers.Page(**query).of("runs", list(snapshot.states.values()))
        shown = [answers.run(state, base, snapshot.heard_at.get(state.run)) for state in page["runs"]]
        return as_json(page | {"runs": shown})

    async def list_incidents(self, request: Request, query: Mapping[str, Any]) -> Response:
        """List the incidents of a run."""
        state = self._run(request)
        page = answers.Page(**query).of("incidents", state.incidents)
        shown = [answers.incident(found, self._served.base) for found in page["incidents"]]
        return as_json(page | {"run": state.run, "incidents": shown})

    async def export(self, request: Request, query: Mapping[str, Any]) -> Response:
        """Return one incident in the format that its name ends with."""
        state, form = self._run(request), request.path_params["format"]
        found = answers.find(state.incidents, request.path_params["incident"])
        if found is None or form not in FORMATS:
            raise HTTPException(404, f"no such incident or format: see /api/runs; formats are {', '.join(FORMATS)}")
        text = await run_in_threadpool(lambda: render(to_document(state, found), form))
        policy = REPORT_POLICY if form == "html" else {}
        return Response(text, headers={"Content-Type": FORMATS[form].content_type, **SAFE, **policy})

    async def list_checkpoints(self, request: Request, query: Mapping[str, Any]) -> Response:
        """List the checkpoints of a run, newest first."""
        state = self._run(request)
        page = answers.Page(**query).of("checkpoints", state.checkpoints[::-1])
        shown = [answers.checkpoint(found, state) for found in page["checkpoints"]]
        return as_json(page | {"run": state.run, "last_good": answers.last_good(state.last_good), "checkpoints": shown})

    async def list_devices(self, request: Request, query: Mapping[str, Any]) -> Response:
        """List devices over all runs. Known from the pages' cache: counting 16,384 of them takes a while."""
        states, part = self._store.snapshot().states, answers.Page(query["limit"], query["offset"])
        rows = await run_in_threadpool(lambda: matching(devices(states, self._store.clock()), query["node"]))
        page = part.of("devices", rows)
        return as_json(page | {"devices": [answers.device(row) for row in page["devices"]]})

    async def targets(self, request: Request, query: Mapping[str, Any]) -> Response:
        """Tell Prometheus where the ranks of the active runs are."""
        return as_json(await run_in_threadpool(self._discovery.groups))

    async def post_events(self, request: Request, query: Mapping[str, Any]) -> Response:
        """Take events in."""
        return await _posted(request, MAX_BODY_BYTES, self._accept)

    def _accept(self, body: bytes, headers: Mapping[str, str], client: str) -> tuple[int, dict[str, Any]]:
        status, answer = self._served.events.accept(body, headers, client)
        if status == 200:
            self._store.publish()
        return status, answer

    async def post_alerts(self, request: Request, query: Mapping[str, Any]) -> Response:
        """Take alerts in. The next refresh shows them: a burst must not fold the runs once an alert."""
        return await _posted(request, MAX_ALERT_BYTES, self._served.alerts.accept)

    def _run(self, request: Request) -> RunState:
        state = self._store.snapshot().states.get(request.path_params["run"])
        if state is None:
            raise HTTPException(404, "no such run: see /api/runs")
        return state


Accept = Callable[[bytes, Mapping[str, str], str], tuple[int, dict[str, Any]]]


async def _posted(request: Request, most_bytes: int, accept: Accept) -> Response:
    """Read a body, hand it with headers and the client's address to an intake, and answer what that says."""
    try:
        body = await _body(request, most_bytes)
    except ClientDisconnect:  # nobody reads the answer, and it is no fault of ours that could be logged
        return problem(400, "the client left before its body was here")
    if body is None:
        return problem(413, f"more than the {most_bytes} bytes one request may have: post fewer")
    client = request.client.host if request.client else ""
    status, answer = await run_in_threadpool(accept, body, dict(request.headers.items()), client)
    return as_json(answer, status)


async def _body(request: Request, most_bytes: int) -> bytes | None:
    """Read a body without ever holding more than ``most_bytes`` of it; None when it is larger."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            return None
        parts.append(part)
    return b"".join(parts)
