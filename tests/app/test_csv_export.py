from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.app import hostile_words
from tests.app.fixtures import states

from lastgood.state import RunState
from lastgood_console.export import csv as csv_export
from lastgood_console.export import document


def content(state: RunState) -> dict[str, Any]:
    return document.to_document(state, state.incidents[0])


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


@pytest.mark.parametrize("row", states.ROWS)
def test_there_is_one_row_for_each_entry_and_the_same_bytes_each_time(row: str) -> None:
    known = content(states.ROWS[row]())
    text = csv_export.render(known)
    assert [r["event"] for r in rows(text)] == [e["text"] for e in known["timeline"]]
    assert csv_export.render(document.loads(document.dumps(known))) == text == csv_export.render(known)


def test_what_happened_at_no_step_has_its_date() -> None:
    found = rows(csv_export.render(content(states.gradient())))
    timed = [r for r in found if r["kind"] in {"started", "ended", "alert"}]
    assert timed
    assert all(r["happened"] == f"{r['happened_at'][:10]} {r['happened_at'][11:19]}" for r in timed)


def test_the_step_of_a_round_is_the_one_that_its_words_name() -> None:
    state = states.gradient()
    ran = tuple(replace(done, step=done.state_step + 1) for done in state.rounds)  # a check looks back at a state
    known = content(replace(state, rounds=ran))
    found = [r for r in rows(csv_export.render(known)) if r["event"].startswith("replica passed")]
    assert found
    assert all(f" at step {r['step']}" in r["event"] for r in found)


def test_both_clocks_are_columns() -> None:
    (found,) = [r for r in rows(csv_export.render(content(states.gradient()))) if r["kind"] == "finding"]
    assert (found["happened_at"], found["known_at"]) == (states.at(751), states.at(1502))
    assert (found["happened"], found["attempt"], found["step"], found["by"]) == (
        "steps (50, 100]",
        "1",
        "100",
        "lastgood",
    )
    assert (found["run"], found["incident"], found["lane"], found["tone"]) == (
        "demo",
        "r-3f2a91c0",
        "findings",
        "accused",
    )


def test_lines_end_as_rfc_4180_says_and_what_is_not_known_is_empty() -> None:
    text = csv_export.render(content(states.gradient()))
    assert text.startswith(",".join(csv_export.COLUMNS) + "\r\n")
    assert text.count("\n") == text.count("\r\n")
    assert text.endswith("\r\n")
    assert {r["step"] for r in rows(text) if r["kind"] == "note"} == {""}


@pytest.mark.parametrize(
    "formula",
    [
        "=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\u00a0=1", "\ufeff=1", "\u200b=1",
        "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20SUM(A1)", "\ufe66SUM", "\u22121", '=HYPERLINK("http://x","y")',
        "=cmd|' /C calc'!A0",
    ],
)  # fmt: skip
def test_a_text_that_a_spreadsheet_would_compute_begins_with_an_apostrophe(formula: str) -> None:
    assert str(csv_export.cell(formula)).startswith("'")
    told = rows(csv_export.render(content(hostile_words.everywhere(formula))))
    assert {r["by"][0] for r in told if r["kind"] in ("note", "action")} == {"'"}
    assert {r["run"][0] for r in told} == {"'"}


@pytest.mark.parametrize("text", ["step 100", "1+1", "a=b", "node-b", "", "'quoted'"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert csv_export.cell(text) == text


def test_numbers_are_no_formulas() -> None:
    assert [csv_export.cell(value) for value in (-1, 0.5, None, "-1")] == [-1, 0.5, "", "'-1"]


@given(st.text())
def test_whatever_a_note_says_is_one_cell(text: str) -> None:
    known = content(states.gradient())
    known["timeline"] = [known["timeline"][-1] | {"text": text, "who": text}]
    (row,) = rows(csv_export.render(known))
    assert row["event"] == row["by"] == csv_export.cell(text)
    assert not row["event"].startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert text.count("\x00") == 0 or "\ufffd" in row["event"]


@pytest.mark.parametrize("words", [hostile_words.HEBREW, hostile_words.ARABIC, hostile_words.CHINESE])
def test_other_scripts_come_out_as_they_were_written(words: str) -> None:
    told = rows(csv_export.render(content(hostile_words.everywhere(words))))
    assert {r["by"] for r in told if r["kind"] == "note"} == {words}


def test_what_turns_the_writing_direction_shows_as_a_mark() -> None:
    text = csv_export.render(content(hostile_words.everywhere(hostile_words.OVERRIDE)))
    assert "\u202e" not in text
    assert "step-\ufffd05\ufffd-dab" in text
