"""Answer over HTTP on the console's port: metrics, health, posted events and alerts, targets, runs, exports.

Streamlit answers any unknown GET with its page and status 200, so a catch-all keeps ``/api`` honest: 404 for a path
that does not exist, 405 for a wrong method, both in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lastgood.ingest import MAX_BODY_BYTES, EventIntake
from lastgood.ledger import Ledger
from lastgood.run_metrics import RunMetrics
from lastgood.serve import health, warn
from lastgood.state import Incident, RunState
from lastgood.targets import Discovery
from lastgood_console.alerts.intake import MAX_BODY_BYTES as MAX_ALERT_BYTES
from lastgood_console.alerts.intake import AlertIntake
from lastgood_console.export.document import to_document
from lastgood_console.export.formats import FORMATS, render
from lastgood_console.store import Store

ALL_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
METHODS: Final[Mapping[str, str]] = {"events": "POST", "alerts": "POST", "runs": "GET", "sd": "GET"}
SAFE: Final = {"X-Content-Type-Options": "nosniff"}


def routes(store: Store, events: EventIntake, alerts: AlertIntake) -> list[Route]:
    """Return the console's routes."""
    api = Api(store, events, alerts)
    return [
        Route("/metrics", api.metrics, methods=["GET"]),
        Route("/healthz", api.healthz, methods=["GET"]),
        Route("/api/events", api.post_events, methods=["POST"]),
        Route("/api/alerts", api.post_alerts, methods=["POST"]),
        Route("/api/sd", api.targets, methods=["GET"]),
        Route("/api/runs", api.list_runs, methods=["GET"]),
        Route("/api/runs/{run}/incidents/{name}", api.export, methods=["GET"]),
        Route("/api/{rest:path}", nothing_here, methods=ALL_METHODS),
    ]


class Api:
    """The routes' handlers, on one store."""

    def __init__(self, store: Store, events: EventIntake, alerts: AlertIntake) -> None:
        self._store, self._events, self._alerts = store, events, alerts
        self._registry = CollectorRegistry()
        self._registry.register(RunMetrics(self._ledger))
        self._discovery = Discovery(self._ledger, warn)

    @property
    def _ledger(self) -> Ledger:
        assert isinstance(self._store.ledger, Ledger)
        return self._store.ledger

    async def metrics(self, request: Request) -> Response:
        """Answer a scrape."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        body = await run_in_threadpool(encode, self._registry)
        return Response(body, headers={"Content-Type": content_type, **SAFE})

    async def healthz(self, request: Request) -> Response:
        """Tell whether the runs are read."""
        status, answer = health(self._ledger, self._store.clock())
        return JSONResponse(answer, status, headers=SAFE)

    async def post_events(self, request: Request) -> Response:
        """Take events in."""
        return await _posted(request, MAX_BODY_BYTES, self._accept)

    def _accept(self, body: bytes, headers: Mapping[str, str], client: str) -> tuple[int, dict[str, Any]]:
        status, answer = self._events.accept(body, headers, client)
        if status == 200:
            self._store.publish()
        return status, answer

    async def post_alerts(self, request: Request) -> Response:
        """Take alerts in. The next refresh shows them: a burst must not fold the runs once an alert."""
        return await _posted(request, MAX_ALERT_BYTES, self._alerts.accept)

    async def targets(self, request: Request) -> Response:
        """Tell Prometheus where the ranks of the active runs are."""
        return JSONResponse(await run_in_threadpool(self._discovery.groups), headers=SAFE)

    async def list_runs(self, request: Request) -> Response:
        """List runs and their incidents."""
        states = self._store.snapshot().states
        return JSONResponse({"runs": [run_summary(state) for state in states.values()]}, headers=SAFE)

    async def export(self, request: Request) -> Response:
        """Return one incident in the format that its name ends with."""
        run, (name, _, form) = request.path_params["run"], request.path_params["name"].rpartition(".")
        state = self._store.snapshot().states.get(run)
        found = next((i for i in state.incidents if name == i.id or name in i.aliases), None) if state else None
        if state is None or found is None or form not in FORMATS:
            known = ", ".join(FORMATS)
            return _error(404, f"no such run, incident or format: see /api/runs; formats are {known}")
        text = await run_in_threadpool(lambda: render(to_document(state, found), form))
        return Response(text, headers={"Content-Type": FORMATS[form].content_type, **SAFE})


def run_summary(state: RunState) -> dict[str, Any]:
    """Return a run in a few words."""
    good = state.last_good
    return {
        "run": state.run,
        "active": state.active,
        "attempt": state.attempt.number if state.attempt else None,
        "step": state.attempt.last_step if state.attempt else None,
        "last_good": {"attempt": good.attempt, "step": good.step, "path": good.path, "trust": good.trust}
        if good.exists
        else None,
        "incidents": [incident_summary(incident) for incident in state.incidents],
    }


def incident_summary(incident: Incident) -> dict[str, Any]:
    """Return an incident in a few words, with the addresses of its exports."""
    base = f"/api/runs/{incident.run}/incidents/{incident.id}"
    return {
        "id": incident.id,
        "state": incident.state,
        "status": incident.status,
        "scope": incident.scope,
        "opened_at": incident.opened_at,
        "exports": {form: f"{base}.{form}" for form in FORMATS},
    }


async def nothing_here(request: Request) -> Response:
    """Answer what no route takes."""
    wanted = METHODS.get(request.path_params["rest"].partition("/")[0])
    known = request.path_params["rest"] in METHODS
    if known and wanted != request.method:
        return _error(405, f"{request.method} is not taken here: use {wanted}", {"Allow": str(wanted)})
    return _error(
        404,
        "nothing here; there are POST /api/events, POST /api/alerts, GET /api/sd, GET /api/runs and "
        "GET /api/runs/RUN/incidents/ID.json",
    )


def _error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": reason}, status, headers={**SAFE, **(headers or {})})


Accept = Callable[[bytes, Mapping[str, str], str], tuple[int, dict[str, Any]]]


async def _posted(request: Request, most_bytes: int, accept: Accept) -> Response:
    """Read a body, hand it with headers and the client's address to an intake, and answer what that says."""
    try:
        body = await _body(request, most_bytes)
    except ClientDisconnect:  # nobody reads the answer, and it is no fault of ours that could be logged
        return _error(400, "the client left before its body was here")
    if body is None:
        return _error(413, f"more than the {most_bytes} bytes one request may have: post fewer")
    client = request.client.host if request.client else ""
    status, answer = await run_in_threadpool(accept, body, dict(request.headers.items()), client)
    return JSONResponse(answer, status, headers=SAFE)


async def _body(request: Request, most_bytes: int) -> bytes | None:
    """Read a body without ever holding more than ``most_bytes`` of it; None when it is larger."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            return None
        parts.append(part)
    return b"".join(parts)
