"""Describe what the HTTP API answers and takes, as JSON Schemas (draft 2020-12, as in OpenAPI 3.1).

The incident document and the events have schemas of their own, which are used here as they are published.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, get_args

from lastgood import schema as events
from lastgood.events import TYPES, Scope, Status
from lastgood.state import IncidentState, Trust
from lastgood_console.export import document
from lastgood_console.export.formats import FORMATS

Schema = dict[str, Any]

LARGEST: Final = (1 << 53) - 1
TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
FLAG: Final[Schema] = {"type": "boolean"}
TIME: Final[Schema] = {"type": "string", "description": "RFC 3339, UTC"}
ZONED_TIME: Final = (
    r"^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
    r"(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])$"
)
"""A date that exists in every month of every year: a pattern cannot know February."""
_ACTIVE: Final = "No end of it was told. A run that died without a word stays active: see heard_at."
_HEARD: Final = "When an active run last wrote, RFC 3339, UTC; null where it has ended, or where that is unknown."
_EVENT_TIME: Final[Schema] = {"type": "string", "pattern": ZONED_TIME.replace(r"(\.[0-9]{1,9})?", r"\.[0-9]{6}")
                              .replace("(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])", "Z")}  # fmt: skip


def ref(name: str) -> Schema:
    """Return a reference to one of :func:`components`."""
    return {"$ref": f"#/components/schemas/{name}"}


def items(of: Schema, says: str = "") -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": of} | ({"description": says} if says else {})


def fields(says: str = "", /, **properties: Schema) -> Schema:
    """Return the schema of an object that always has all of these."""
    found: Schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    return found | ({"description": says} if says else {})


def page(name: str, of: Schema, **more: Schema) -> Schema:
    """Return the schema of a part of a list, with the length of the whole."""
    return fields(**more, **{name: items(of)}, total=COUNT, limit=COUNT, offset=COUNT)


def nullable(of: Schema) -> Schema:
    """Return a schema that null fits too."""
    return {"anyOf": [of, {"type": "null"}]}


@cache
def components() -> dict[str, Schema]:
    """Return name -> schema of everything that operations refer to."""
    return _state() | _around() | _taken() | {"IncidentDocument": _inlined(document.schema())} | _events()


def _state() -> dict[str, Schema]:
    point = {"attempt": {"type": "integer"}, "step": {"type": "integer"}, "path": TEXT}
    good = fields("The checkpoint to resume from.", **point, trust={"enum": [*get_args(Trust)]}, reason=TEXT)
    return {
        "LastGood": good,
        "Incident": fields(
            id=TEXT, run=TEXT, state={"enum": [*get_args(IncidentState)]}, status={"enum": [*get_args(Status)]},
            scope={"enum": [*get_args(Scope)]}, opened_at=TIME, resume_step={"type": ["integer", "null"]},
            exports=fields("Where each format is, on this server.", **dict.fromkeys(FORMATS, TEXT)),
        ),
        "Run": fields(
            run=TEXT, active=FLAG | {"description": _ACTIVE}, heard_at=nullable(TIME | {"description": _HEARD}),
            attempt={"type": ["integer", "null"]}, step={"type": ["integer", "null"]},
            last_good=nullable(ref("LastGood")), incidents=items(ref("Incident"), "Newest first."),
        ),
        "Checkpoint": document.schema()["properties"]["checkpoints"]["items"],
        "Runs": page("runs", ref("Run")),
        "Incidents": page("incidents", ref("Incident"), run=TEXT),
        "Checkpoints": page("checkpoints", ref("Checkpoint"), run=TEXT, last_good=nullable(ref("LastGood"))),
        "Devices": page("devices", ref("Device")),
        "Device": _device(),
    }  # fmt: skip


def _device() -> Schema:
    return fields(
        node=TEXT, gpu_uuid=TEXT, slot={"type": "integer"}, last_seen=TIME,
        accused_7_days=COUNT, accused_90_days=COUNT, candidate=COUNT,
        runs_as=items(fields(run=TEXT, rank=COUNT), "Its ranks in active runs."),
        incidents=items(fields(run=TEXT, id=TEXT), "Those that accuse or name it, newest first."),
    )  # fmt: skip


def _around() -> dict[str, Schema]:
    return {
        "Error": fields("Why not.", error=TEXT),
        "Health": fields(
            status={"enum": ["ok", "stale"]}, version=TEXT, runs=COUNT, folders_gone=COUNT,
            last_read_age_seconds={"type": ["number", "null"]}, unreadable=COUNT,
        ),
        "Targets": items(
            fields(targets=items(TEXT), labels=fields(__meta_lastgood_run=TEXT)),
            "As Prometheus's HTTP service discovery reads them.",
        ),
    }  # fmt: skip


def _taken() -> dict[str, Schema]:
    rejected = items(fields(index=COUNT, reason=TEXT), "What could not be taken.")
    refused = fields("Why nothing was taken.", error=TEXT)
    refused["properties"]["rejected"] = rejected
    return {
        "EventsTaken": fields(accepted=COUNT, duplicates=COUNT, rejected=rejected),
        "AlertsTaken": fields(accepted=COUNT, duplicates=COUNT, heartbeats=COUNT, rejected=rejected),
        "Refused": refused,
        "Webhook": _webhook(),
    }


def _webhook() -> Schema:
    """Return what is asked of a webhook: an alert is not refused for a part that it can do without."""
    labels = {"type": "object", "description": "Name to text; of any other value the text is taken."}
    alert = fields(status={"enum": ["firing", "resolved"]}, labels=labels, startsAt=_time_with_zone())
    alert["properties"] |= {
        "annotations": {"description": "As labels."},
        "endsAt": {"description": "As startsAt; anything else counts as not said."},
        "generatorURL": {"description": "A text."},
        "fingerprint": {"description": "A text; one is made of the labels when there is none."},
    }
    version = {"enum": ["4", "1"], "description": "4: Alertmanager; 1: Grafana."}
    return fields("What Alertmanager and Grafana send; more keys may be there.", version=version,
                  alerts=items(alert))  # fmt: skip


def _time_with_zone() -> Schema:
    return {"type": "string", "pattern": ZONED_TIME}


def _events() -> dict[str, Schema]:
    """Return an event of each type, and what any of them is."""
    whole = _inlined(events.load("event"))
    found: dict[str, Schema] = {}
    for kind in TYPES:
        own = {"type": {"const": f"lastgood.{kind}"}, "data": _inlined(events.load(kind)), "time": _EVENT_TIME}
        if kind != "progress":
            own["dataschema"] = {"const": f"urn:lastgood:{kind}:1"}
        properties = {key: value for key, value in whole["properties"].items() if key != "dataschema"} | own
        found[_name(kind)] = {**whole, "properties": properties, "required": sorted({*whole["required"], *own})}
    return {"Event": {"oneOf": [ref(name) for name in found]}, **found}


def _name(kind: str) -> str:
    return "Event" + "".join(part.capitalize() for part in kind.split("."))


def _inlined(schema: Mapping[str, Any]) -> Schema:
    """Return a schema without references into itself and without a name of its own, so that it can stand in another."""
    defs = schema.get("$defs", {})

    def walk(part: Any) -> Any:
        if isinstance(part, list):
            return [walk(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return walk(defs[part["$ref"].removeprefix("#/$defs/")])
        return {key: walk(value) for key, value in part.items() if key not in ("$schema", "$id", "$defs")}

    return walk(dict(schema))  # type: ignore[no-any-return]
