"""Events: their schemas, their lines, and what a reader refuses."""

import copy
import json
import math
from typing import Any, get_type_hints

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood import events, schema
from lastgood.errors import JournalError, SchemaVersionError
from lastgood.events import TYPES, Event, event_from_dict, event_from_line, is_slug, plain, slug, source_of, utc

DEVICE = {"rank": 3, "node": "node-b", "gpu_uuid": "GPU-8c1e", "slot": 1}
PARENT = {"attempt": 1, "step": 50, "path": "checkpoints/a1-step-000050"}
SAVE = {"attempt": 1, "step": 75, "path": "checkpoints/a1-step-000075"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "run.started": {
        "world_size": 6, "topology": "topology/2.json.gz", "config": {"policy": "stop"},
        "cadence": {"replay": 50, "at_rest": None}, "not_run": {"at_rest": "switched off"},
        "environment": {"3fd2": [0, 1]}, "versions": {"torch": "2.13.0"}, "seed": 1, "parent": PARENT,
        "parent_known": True, "parent_verified": True, "from_step": 50,
    },
    "run.ended": {"reason": "integrity", "exit_code": 1, "last_step": 100},
    "check": {
        "check": "replay", "phase": "audit", "state_step": 100, "result": "failed", "reason": "rank 3 disagrees",
        "exceptions": [{"rank": 3, "result": "failed", "reason": ""}],
    },
    "finding": {
        "check": "replay", "step": 100, "state_step": 100, "phase": "audit", "contained": False, "ranks": [3],
        "devices": [DEVICE], "tensor": "layers.2.weight", "bucket": None, "observed": "0x9c", "expected": "0x11",
        "evidence": [{"kind": "pair", "text": "rank 5 disagreed", "partner": 5}],
    },
    "verdict": {
        "findings": ["f-1"], "status": "attributed", "scope": "gpu", "suspects": [{**DEVICE, "role": "accused"}],
        "nature": "persistent", "confidence": "exact", "for": ["rank 0 sided with rank 5"], "against": [],
        "resume": {**PARENT, "trust": "trusted", "reason": "audited on both sides"}, "action": "stop",
    },
    "checkpoint.started": SAVE,
    "checkpoint.saved": {**SAVE, "parent": PARENT, "bytes": 10, "seconds": 0.5, "blocked_seconds": 0.5,
                         "fingerprint": "ab" * 16, "checks": {"replica": "passed", "replay": "not_run"}},
    "checkpoint.failed": {**SAVE, "reason": "integrity", "checks": {"replica": "failed"}},
    "checkpoint.loaded": {**SAVE, "parent": None},
    "progress": {"step": 100, "step_seconds": 0.1, "check_share": 0.01, "seconds": {"productive": 3.0},
                 "passed": {"finite": 100}, "grad_norm": [0.1, 0.2, "NaN"], "extremes": [[3, 2.0]]},
    "cadence": {"cadence": {"replay": 800, "at_rest": None}, "state_every": None, "share": 0.01, "budget": 0.01,
                "not_run": {"at_rest": "no sample can be taken"}},
    "restart": {"reason": "integrity", "seconds": 2.0, "lost_steps": 50, "excluded": ["node-b"]},
    "device.excursion": {"excursion": "thermal_margin-3-1", "state": "ended", "nature": "thermal_margin",
                         "sensor": "margin", "value": 3.0, "limit": 5.0, "unit": "celsius", "started": utc(1.0),
                         "ended": utc(2.0), "rank": 3, "node": "node-b", "gpu_uuid": "GPU-1", "slot": 1,
                         "kept_back": 0, "text": "rank 3: 3 °C left"},
    "alert": {"name": "ReplayMismatch", "status": "firing", "severity": "critical", "summary": "rank 3 disagreed",
              "description": "", "labels": {"run": "llama-7b"}, "starts_at": utc(1.0), "ends_at": utc(2.0),
              "fingerprint": "b2f1", "source": "alertmanager", "generator_url": "", "runbook_url": "",
              "incident": "r-1", "check": "replay", "rank": 3, "node": "node-b", "gpu_uuid": "GPU-1",
              "resume_step": 50, "value": "50", "rule": "", "reason": "", "truncated": 3},
    "note": {"text": "ticket 12", "author": "kim"},
    "action": {"action": "close", "author": "kim", "incident": "i-1"},
    "injection": {"site": "backward", "fault": "gradient", "step": 67, "rank": 3, "tensor": "h.1",
                  "detail": "x8", "permanent": True},
}  # fmt: skip


def event(type: str = "note", **changes: Any) -> Event:
    values: dict[str, Any] = dict(
        id="rank-0-1", source=source_of("llama-7b", 1, 0), type=type, time=utc(1.0), run="llama-7b", attempt=1,
        data=copy.deepcopy(EXAMPLES[type]), rank=0, node="node-a", step=100,
    )  # fmt: skip
    return Event(**values | changes)


@pytest.mark.parametrize("type", TYPES)
def test_an_event_of_every_type_passes_both_readings_of_its_schema_and_survives_a_line(type: str) -> None:
    one = event(type)
    jsonschema.validate(dict(one.data), schema.load(type))
    jsonschema.validate(one.to_dict(), schema.load("event"))
    assert event_from_line(one.to_line()) == one


@pytest.mark.parametrize("name", [*TYPES, "event"])
def test_every_shipped_schema_is_a_valid_json_schema_and_compiles(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema.load(name))
    assert schema.load(name)["$id"] == f"urn:lastgood:{name}:1"
    schema.problem(name, {})


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("run.started", events.RunStartedData), ("run.ended", events.RunEndedData), ("check", events.CheckData),
        ("finding", events.FindingData), ("verdict", events.VerdictData), ("checkpoint.saved", events.CheckpointData),
        ("progress", events.ProgressData), ("cadence", events.CadenceData), ("restart", events.RestartData),
        ("note", events.NoteData), ("action", events.ActionData), ("injection", events.InjectionData),
        ("device.excursion", events.ExcursionData), ("alert", events.AlertData),
    ],
)  # fmt: skip
def test_the_schemas_name_the_fields_of_the_typed_dicts(type: str, data: Any) -> None:
    assert set(schema.load(type)["properties"]) == set(get_type_hints(data))
    if type in ("run.started", "run.ended", "check", "finding", "verdict"):
        assert set(schema.load(type)["required"]) == data.__required_keys__


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, item in inner for path in paths(item, (*at, key)))]


JUNK = st.sampled_from([None, True, -2, 0, 3, 0.5, "", "passed", [], {}, [1], {"a": 1}])


@given(st.sampled_from(TYPES), st.data())
def test_damaged_data_is_judged_as_the_jsonschema_package_judges_it(type: str, draw: st.DataObject) -> None:
    data = copy.deepcopy(EXAMPLES[type])
    path = draw.draw(st.sampled_from([path for path in paths(data) if path]))
    place = data
    for key in path[:-1]:
        place = place[key]
    if draw.draw(st.booleans()):
        del place[path[-1]]
    else:
        place[path[-1]] = draw.draw(JUNK)
    valid = jsonschema.Draft202012Validator(schema.load(type)).is_valid(data)
    assert (schema.problem(type, data) is None) == valid


def test_a_broken_field_is_named_with_its_place() -> None:
    data = EXAMPLES["finding"] | {"devices": [DEVICE | {"rank": -1}]}
    with pytest.raises(JournalError, match=r"data\.devices\[0\]\.rank: -1 is below 0"):
        event_from_dict(event("finding", data=data).to_dict())


def test_a_newer_schema_says_which_version_it_needs() -> None:
    with pytest.raises(SchemaVersionError, match="reads schema version 2, this one reads up to 1"):
        event_from_dict(event("note", schema=2).to_dict())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": "com.example.push"}, "not an event of lastgood"),
        ({"type": "lastgood.nothing", "dataschema": "urn:lastgood:nothing:1"}, "lastgood.nothing is not known"),
        ({"run": "../etc"}, "event.run"),
        ({"run": "a\n"}, "event.run"),
        ({"time": "2026-13-01T00:00:00.000000Z"}, "no such date"),
        ({"time": "yesterday"}, "event.time"),
        ({"attempt": -1}, "event.attempt"),
        ({"attempt": True}, "event.attempt"),
        ({"dataschema": "https://example.com"}, "dataschema"),
        ({"specversion": "0.3"}, "event.specversion"),
        ({"data": [1]}, "event.data"),
        ({"data": {"text": "\ud800"}}, "not Unicode"),
    ],
)
def test_what_is_not_an_event_of_lastgood_is_refused_with_the_reason(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(JournalError, match=reason.replace(".", r"\.")):
        event_from_dict(event().to_dict() | change)


@pytest.mark.parametrize(
    "line", ["", "null", "[1]", "{", '{"a": NaN}', '{"a": 1e999}', b"\xff\xfe", "[" * 100_000, "9" * 5000]
)
def test_a_line_that_is_no_event_is_a_journal_error_and_nothing_else(line: str | bytes) -> None:
    with pytest.raises(JournalError):
        event_from_line(line)


def test_unknown_fields_and_attributes_do_not_matter() -> None:
    newer = event().to_dict() | {"traceparent": "00-1"}
    newer["data"]["mood"] = "good"
    assert event_from_dict(newer).data["mood"] == "good"


def test_numbers_that_json_cannot_hold_become_strings() -> None:
    assert plain({"a": math.nan, "b": [math.inf, -math.inf], 3: (True, None, 1)}) == {
        "a": "NaN", "b": ["Infinity", "-Infinity"], "3": [True, None, 1],
    }  # fmt: skip


LEAVES = st.one_of(st.floats(), st.text(), st.binary(), st.integers(), st.characters(categories=["Cs"]))


@given(st.recursive(LEAVES, st.lists))
def test_whatever_is_given_becomes_a_line(value: Any) -> None:
    line = event(data={"text": "x", "v": plain(value)}).to_line()
    assert "\n" not in line
    assert event_from_line(line.encode()).data["v"] == plain(value)


def test_data_that_contains_itself_ends_somewhere() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert json.dumps(plain(loop))


@given(st.text(), st.sampled_from("aZ3_"))
def test_a_slug_is_a_run_id_and_stays_as_it_is(text: str, letter: str) -> None:
    assert is_slug(slug(text + letter))
    assert slug(slug(text + letter)) == slug(text + letter)


@pytest.mark.parametrize("text", ["", "..", "-/-", "日本"])
def test_a_name_without_any_usable_letter_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot name a run: use letters"):
        slug(text)


def test_an_integer_too_long_for_json_is_written_in_hexadecimal() -> None:
    assert plain(1 << 5000) == hex(1 << 5000)


def test_long_names_that_begin_alike_stay_two_runs() -> None:
    assert slug("x" * 80 + "1") != slug("x" * 80 + "2")
    assert slug("Llama 7B/v2") == "llama-7b-v2"


def test_the_source_is_percent_encoded() -> None:
    assert source_of("a/b c", 2, 7) == "/lastgood/a%2Fb%20c/2/rank/7"
