from __future__ import annotations

import json
import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.app import hostile_words
from tests.app.fixtures import states

from lastgood.state import Incident, LastGood, RunState, Unreadable
from lastgood_console.export import document, html
from lastgood_console.export.formats import FORMATS, render

Document = dict[str, Any]


def exported(state: RunState, incident: Incident | None = None) -> Document:
    return document.to_document(state, incident or state.incidents[0])


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = document.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("row", states.ROWS)
def test_every_row_of_the_demo_holds_to_the_published_schema(
    row: str, validator: jsonschema.Draft202012Validator
) -> None:
    text = document.dumps(exported(states.ROWS[row]()))
    assert [error.message for error in validator.iter_errors(json.loads(text))] == []


@pytest.mark.parametrize("row", states.ROWS)
def test_the_round_trip_is_byte_for_byte(row: str) -> None:
    text = document.dumps(exported(states.ROWS[row]()))
    assert document.dumps(document.loads(text)) == text
    assert document.dumps(exported(states.ROWS[row]())) == text


def test_a_field_that_the_schema_does_not_know_is_refused(validator: jsonschema.Draft202012Validator) -> None:
    content = exported(states.gradient())
    content["suspects"][0]["nickname"] = "x"
    assert not validator.is_valid(content)


@given(text=st.text(), number=st.floats(), whole=st.integers())
def test_whatever_the_evidence_holds_survives_the_round_trip(text: str, number: float, whole: int) -> None:
    state = states.reduce_all()
    base = state.incidents[0]
    evidence = ({"kind": "note", "text": text, text: [number, whole, None, {"deep": (number,)}]},)
    findings = tuple(replace(f, evidence=evidence) for f in base.findings)
    written = document.dumps(exported(state, replace(base, findings=findings)))
    assert document.dumps(document.loads(written)) == written
    assert document.loads(written.encode().decode())["findings"][0]["evidence"][0]["kind"] == "note"


def test_numbers_that_json_cannot_spell_are_words() -> None:
    text = document.dumps(exported(states.gradient()))
    assert json.loads(text, parse_constant=pytest.fail)["peers"][0]["suspect"][31] == "NaN"


def test_any_mapping_is_written_not_only_dictionaries() -> None:
    state = states.gradient()
    frozen = replace(state.attempts[0], cadence=MappingProxyType({"replay": 50}))
    content = exported(replace(state, attempts=(frozen, *state.attempts[1:])))
    assert content["attempts"][0]["cadence"] == {"replay": 50}


def test_it_says_what_to_do_and_what_not_to_use() -> None:
    content = exported(states.gradient())
    assert content["resume"]["command"] == 'monitor.resume("checkpoints/a1-step-000050")'
    assert content["resume"]["exclude"] == ["node-b"]
    assert [(c["step"], c["trust"]) for c in content["covered"]] == [(75, "suspect")]
    assert content["words"]["headline"] == "Rank 3 (node-b, slot 1) computed wrong gradients in steps (50, 100]."


def test_the_last_good_is_that_of_the_run_and_the_resume_point_that_of_the_incident() -> None:
    state = states.gradient()
    newest = state.checkpoints[-1]
    now = replace(state, last_good=LastGood(newest.attempt, newest.step, newest.path, newest.trust, newest.reason))
    content = exported(now)
    assert [(c["attempt"], c["step"]) for c in content["checkpoints"] if c["last_good"]] == [
        (newest.attempt, newest.step)
    ]
    assert (content["resume"]["attempt"], content["resume"]["step"]) == (1, 50) != (newest.attempt, newest.step)
    marks = re.findall(r"<b>((?:Last good|Resume point of this incident)\.)</b>", html.render(content))
    assert marks == ["Last good.", "Resume point of this incident."]


def test_a_skipped_step_offers_nothing_to_resume_from(validator: jsonschema.Draft202012Validator) -> None:
    state = states.reduce_one()
    content = exported(state, replace(state.incidents[0], recovered_by=1, state="recovered"))
    assert [error.message for error in validator.iter_errors(json.loads(document.dumps(content)))] == []
    assert content["words"]["resume"] == "not needed"
    report = html.render(content)
    assert "monitor.resume" not in report
    assert "No resume needed: the step was skipped and training went on." in report


def test_nothing_to_resume_from_is_null() -> None:
    assert exported(states.data())["resume"] is None


def test_the_evidence_tells_what_every_check_said() -> None:
    rows = {row["check"]: row["result"] for row in exported(states.gradient())["evidence"]}
    assert rows == {
        "finite": "passed", "conservation": "passed", "replica": "passed", "replay": "failed", "at_rest": "not_run",
    }  # fmt: skip


def test_a_check_without_any_record_is_left_out_and_never_passed() -> None:
    state = states.gradient()
    quiet = replace(state, rounds=(), checkpoints=())
    rows = {row["check"]: row["result"] for row in exported(quiet)["evidence"]}
    assert rows == {"replay": "failed", "at_rest": "not_run"}


def test_it_is_written_from_the_journal_not_from_the_clock() -> None:
    state = states.gradient(unreadable=(Unreadable("journal/000001/rank-0.jsonl", 7, "torn"),))
    assert exported(state)["written"] == {
        "at": state.last_event_at,
        "by": exported(state)["written"]["by"],
        "events": 214,
        "events_digest": state.events_digest,
        "unreadable": [{"file": "journal/000001/rank-0.jsonl", "line": 7, "reason": "torn"}],
    }


def test_only_trusted_checkpoints_are_thinned_out() -> None:
    state = states.gradient()
    many = tuple(states.save(1, s, s * states.PACE, "suspect" if s == 80 else "trusted") for s in range(0, 100))
    content = exported(replace(state, checkpoints=many))
    kept = [row["step"] for row in content["checkpoints"]]
    assert len(kept) <= document.MOST_CHECKPOINTS
    assert {80, 50} <= set(kept)
    assert content["checkpoints_omitted"] == 100 - len(kept)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not an incident document"),
        ('{"format": "other"}', "not an incident document"),
        ('{"format": "lastgood.incident", "version": 2}', "version 2: this lastgood reads version 1, use the one that"),
        ('{"format": "lastgood.incident", "version": 1}', "not a whole incident document: attempts: missing"),
        ('{"format": "lastgood.incident", "version": 1, "cost": NaN}', "NaN is not a number of JSON"),
        ('{"format": "lastgood.incident", "version": 1, "cost": 1e999}', "1e999 is too large"),
        ('{"format": "lastgood.incident", "version": 1, "run": "\\ud800"}', "not JSON: .*surrogates"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_foreign_text_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(document.DocumentError, match=problem):
        document.loads(text)


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("incident", "state"), "mended", "incident.state: 'mended' is not one of open, recovered"),
        (("timeline", 0, "at"), "yesterday", "timeline.0..at: 'yesterday' is not"),
        (("words", "cost"), ["1"], "words.cost: fewer than 3 items"),
        (("suspects", 0, "nickname"), "x", "suspects.0..nickname: not known here"),
        (("checkpoints", 0, "step"), "50", "checkpoints.0..step: '50' is not of type integer"),
    ],
)
def test_a_document_that_was_changed_is_refused_with_the_place(
    place: tuple[str | int, ...], value: Any, problem: str, validator: jsonschema.Draft202012Validator
) -> None:
    content: Any = json.loads(document.dumps(exported(states.gradient())))
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert not validator.is_valid(content)
    with pytest.raises(document.DocumentError, match=problem):
        document.loads(json.dumps(content))


def test_what_turns_the_writing_direction_is_spelled_out_and_comes_back() -> None:
    text = document.dumps(exported(hostile_words.everywhere(hostile_words.OVERRIDE)))
    assert "step-\\u202e05\\u202c-dab" in text
    assert "\u202e" not in text
    assert document.loads(text)["checkpoints"][0]["path"] == hostile_words.OVERRIDE
    assert document.dumps(document.loads(text)) == text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("row", states.ROWS)
def test_every_format_is_made_from_the_document_alone(form: str, row: str) -> None:
    content = exported(states.ROWS[row]())
    assert render(document.loads(document.dumps(content)), form) == render(content, form) == render(content, form)


def test_what_few_ranks_showed_stands_before_what_many_share_and_what_names_nobody() -> None:
    base = states.nan()
    own, many = base.incidents[0].findings[1], tuple(range(16384))
    shared = replace(base.incidents[0].findings[0], ranks=many)
    nobody = states.reduce_all().incidents[0].findings[0]
    incident = replace(base.incidents[0], findings=(nobody, shared, own))
    subjects = [row["subject"] for row in exported(base, incident)["evidence"] if row["result"] == "failed"]
    assert subjects[0] == "rank 3"
    assert subjects[-1] == "no rank stands out"
    assert len(subjects[1]) < 60
