"""List what can be asked over HTTP: one table, which the routes and the OpenAPI document are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from lastgood_console.export.formats import FORMATS
from lastgood_console.http.schemas import LARGEST, Schema, ref

Access = Literal["open", "read", "write"]
"""Who may: anybody; with sign-in on whoever is signed in or shows the token; whoever shows the token."""

JSON: Final = "application/json"
DEFAULT_LIMIT: Final = 100
MOST_LIMIT: Final = 1000


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of the path or of the query. Integers of a query are read and held to their bounds before a handler."""

    name: str
    where: Literal["path", "query"]
    says: str
    schema: Schema = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: what it is, and its content type -> schema."""

    says: str
    content: Mapping[str, Schema]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that can be asked. ``name`` is that of the handler. The errors that all share are not listed."""

    method: Literal["GET", "POST"] = "GET"
    path: str
    name: str
    says: str
    access: Access = "read"
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    body_type: str = JSON
    answers: Mapping[int, Answer]

    @property
    def query(self) -> Mapping[str, Parameter]:
        """Return the parameters of the query by name."""
        return {p.name: p for p in self.parameters if p.where == "query"}


def _json(says: str, name: str) -> Answer:
    return Answer(says, {JSON: ref(name)})


def _whole(minimum: int, maximum: int, default: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "default": default}


_RUN: Final = Parameter("run", "path", "The run, as /api/runs names it.")
_PAGE: Final = (
    Parameter("limit", "query", "How many at most.", _whole(1, MOST_LIMIT, DEFAULT_LIMIT)),
    Parameter("offset", "query", "How many to skip.", _whole(0, LARGEST, 0)),
)
_NOT_FOUND: Final = _json("No such run, incident or format.", "Error")
_BAD_QUERY: Final = _json("A parameter is wrong.", "Error")
_EXPORT: Final = (
    _RUN,
    Parameter("incident", "path", "The id of the incident."),
    Parameter("format", "path", "The format.", {"enum": [*FORMATS]}),
)


def _export_content() -> Mapping[str, Schema]:
    kinds = [form.content_type.partition(";")[0] for form in FORMATS.values()]
    return {kind: ref("IncidentDocument") if kind == JSON else {"type": "string"} for kind in kinds}


def _refusals(taken: str) -> Mapping[int, Answer]:
    return {
        200: _json("What was taken. What is a repeat counts as a duplicate.", taken),
        400: _json("Nothing in it could be taken.", "Refused"),
        401: _json("The token is missing or wrong.", "Error"),
        413: _json("Too much for one request.", "Error"),
        415: _json("Another content type than JSON, or a packed body.", "Error"),
        503: _json("It cannot be kept now: send it again.", "Error"),
    }


_METRICS: Final[Mapping[str, Schema]] = {
    "text/plain": {"type": "string"},
    "application/openmetrics-text": {"type": "string"},
}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        path="/healthz", name="healthz", says="Tell whether the runs are read", access="open",
        answers={200: _json("They are.", "Health"), 503: _json("Not for a minute.", "Health")},
    ),
    Operation(
        path="/metrics", name="metrics", says="Return the metrics of the runs, for Prometheus",
        answers={200: Answer("In the format that Accept asks for.", _METRICS)},
    ),
    Operation(
        path="/api/openapi.json", name="openapi", says="Return this document",
        answers={200: Answer("OpenAPI 3.1.", {JSON: {"type": "object"}})},
    ),
    Operation(
        path="/api/runs", name="list_runs", says="List runs with their incidents", parameters=_PAGE,
        answers={200: _json("Runs by name.", "Runs"), 400: _BAD_QUERY},
    ),
    Operation(
        path="/api/runs/{run}/incidents", name="list_incidents", says="List the incidents of a run, newest first",
        parameters=(_RUN, *_PAGE),
        answers={200: _json("Incidents.", "Incidents"), 400: _BAD_QUERY, 404: _NOT_FOUND},
    ),
    Operation(
        path="/api/runs/{run}/incidents/{incident}.{format}", name="export", says="Export an incident",
        parameters=_EXPORT, answers={200: Answer("In the format of its name.", _export_content()), 404: _NOT_FOUND},
    ),
    Operation(
        path="/api/runs/{run}/checkpoints", name="list_checkpoints",
        says="List the checkpoints of a run and how far each can be trusted, newest first", parameters=(_RUN, *_PAGE),
        answers={200: _json("Checkpoints.", "Checkpoints"), 400: _BAD_QUERY, 404: _NOT_FOUND},
    ),
    Operation(
        path="/api/nodes", name="list_devices",
        says="List the devices of all runs with what each was accused of, the most accused first",
        parameters=(Parameter("node", "query", "A node; or what is searched in names of nodes and GPUs."), *_PAGE),
        answers={200: _json("Devices.", "Devices"), 400: _BAD_QUERY},
    ),
    Operation(
        path="/api/sd", name="targets", says="Tell Prometheus where the ranks of the active runs are",
        answers={200: _json("Targets.", "Targets")},
    ),
    Operation(
        method="POST", path="/api/events", name="post_events", says="Take events of training processes in",
        access="write", body={"anyOf": [ref("Event"), {"type": "array", "items": ref("Event"), "maxItems": 10_000}]},
        answers=_refusals("EventsTaken"),
    ),
    Operation(
        method="POST", path="/api/alerts", name="post_alerts", says="Take alerts of Alertmanager or Grafana in",
        access="write", body=ref("Webhook"), answers=_refusals("AlertsTaken"),
    ),
)  # fmt: skip
"""Everything, in the order in which the document shows it."""


def paths() -> Mapping[str, Mapping[str, Operation]]:
    """Return path -> method -> operation."""
    found: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        found.setdefault(operation.path, {})[operation.method] = operation
    return found


def default_of(parameter: Parameter) -> Any:
    """Return what a parameter is when it is not given."""
    return parameter.schema.get("default", "")
