from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.app.fixtures import run_dirs, states
from tests.exporter.histories import History, trusts

from lastgood import schema
from lastgood.state import Incident, RunState
from lastgood_console import actions
from lastgood_console.actions import ActionError
from lastgood_console.components import decision
from lastgood_console.export import document
from lastgood_console.export.formats import render
from lastgood_console.export.origin import none_in_doubt
from lastgood_console.incident_commands import incident_lines


def state_of(**changes: object) -> tuple[RunState, Incident]:
    state = states.gradient()
    return state, replace(state.incidents[0], **changes)  # type: ignore[arg-type]


OPEN = {"state": "open", "recovered_at": None, "recovered_by": None}
CLOSED = {"state": "closed", "closed_at": states.at(3_000), "closed_by": "kim"}


@pytest.mark.parametrize("action", actions.INCIDENT_ACTIONS)
def test_a_deed_names_who_and_what_and_holds_to_the_schema(action: str) -> None:
    state, about = state_of(**(CLOSED if action == "reopen" else OPEN))
    deed = actions.to_incident(state, about, action, " mira ", " drained\r\nnode-b ")
    assert schema.problem(deed.type, deed.data) is None
    assert (deed.data["author"], deed.data["incident"], deed.attempt) == ("mira", "r-3f2a91c0", 1)
    assert (deed.data.get("text") or deed.data.get("reason")) == "drained\nnode-b"
    assert deed.data.get("action", "note") == action


def test_a_deed_comes_after_all_that_was_seen() -> None:
    state, about = state_of(**OPEN)
    assert actions.to_incident(state, about, "note", "mira", "x").not_before == "2026-11-29T03:26:20.000001Z"
    late = replace(state, annotations=(states.event("note", 90_000, 1, {"text": "x"}),))
    assert actions.to_incident(late, about, "note", "mira", "x").not_before == "2026-11-30T03:32:00.000001Z"


@pytest.mark.parametrize(
    ("action", "changes", "problem"),
    [
        ("acknowledge", {}, "is recovered by attempt 2: only an open one waits to be acknowledged"),
        ("acknowledge", CLOSED, "is closed by kim: only an open one"),
        ("close", CLOSED, "is closed by kim already: write a note"),
        ("close", CLOSED | {"closed_by": "cleared"}, "is closed: cleared already"),
        ("reopen", OPEN, "is open: only one that is closed or recovered can be reopened"),
        ("reopen", CLOSED | {"closed_by": "cleared"}, "is closed: cleared: it came back elsewhere"),
        ("delete", OPEN, "'delete' is nothing that can be done: use one of acknowledge, note, cause, close, reopen"),
    ],
)
def test_what_would_have_no_effect_is_refused(action: str, changes: dict[str, object], problem: str) -> None:
    state, about = state_of(**changes)
    with pytest.raises(ActionError, match=problem):
        actions.to_incident(state, about, action, "mira", "x")


@pytest.mark.parametrize(
    ("by", "problem"),
    [
        ("", "who says so"),
        ("  ", "who says so"),
        ("x" * 81, "the name has 81 letters: at most 80 are kept"),
        ("Cleared", "'Cleared' is a name that lastgood uses itself"),
        ("lastgood", "give your own"),
        ("mi\nra", r"the name holds the character U\+000A"),
        ("mira\x1b[2J", r"U\+001B: control characters and marks that turn"),
        ("mira\u202e", r"U\+202E"),
        ("mi\udcffra", r"the name is not UTF-8"),
    ],
)
def test_a_bad_name_is_refused(by: str, problem: str) -> None:
    state, about = state_of(**OPEN)
    with pytest.raises(ActionError, match=problem):
        actions.to_incident(state, about, "note", by, "x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "note needs words"),
        (" \n ", "note needs words"),
        ("x" * 4_001, "the text has 4001 letters: at most 4000 are kept; put the rest into a ticket"),
        ("a\x00b", r"the text holds the character U\+0000"),
        ("a\u2066b", r"U\+2066"),
        ("a\udcffb", "the text is not UTF-8"),
    ],
)
def test_a_bad_text_is_refused(text: str, problem: str) -> None:
    state, about = state_of(**OPEN)
    with pytest.raises(ActionError, match=problem):
        actions.to_incident(state, about, "note", "mira", text)


@pytest.mark.parametrize(
    "text", ["x" * 4_000, "\u05e9\u05dc\u05d5\u05dd \u200fnode-b", "a\tb\nc", "<b>=1+1</b>", "\U0001f525"]
)
def test_other_scripts_lines_and_signs_are_welcome(text: str) -> None:
    state, about = state_of(**OPEN)
    assert actions.to_incident(state, about, "note", "\u05de\u05d9\u05e8\u05d4", text).data["text"] == text


def test_only_an_acknowledgement_goes_without_words() -> None:
    state, about = state_of(**OPEN)
    assert "reason" not in actions.to_incident(state, about, "acknowledge", "mira").data
    with pytest.raises(ActionError, match="close needs words"):
        actions.to_incident(state, about, "close", "mira")


# --- checkpoints -----------------------------------------------------------------------------------------------------

SPARE = ("node-a", "node-d", "node-c")


def unverified_parent() -> History:
    """Return a run that went on from a save which no replay had passed."""
    story = History().start().save(0).audit(1, phase="first").save(25).audit(25).save(50).end(60, "signal")
    return story.start(50, (1, 50, story.path(50)), nodes=SPARE).audit(51).save(75).audit(100)


def said(story: History, deed: actions.Deed) -> RunState:
    """Return the state after a deed."""
    return story.write(deed.type, deed.step, writer="console/host-1", **deed.data).state()


def test_a_word_for_a_checkpoint_makes_what_descends_from_it_trusted() -> None:
    story = unverified_parent()
    deed = actions.accept(story.state(), "mira", "same bytes as in S3", path="checkpoints/a1-step-000050", run_dir=None)
    assert deed.data == {
        "action": "accept", "author": "mira", "reason": "same bytes as in S3", "attempt": 1, "step": 50,
        "path": "checkpoints/a1-step-000050",
    }  # fmt: skip
    assert trusts(story.state())[2, 75] == "unverified"
    assert trusts(said(story, deed))[2, 75] == "trusted"


def test_a_path_is_found_however_it_is_written(tmp_path: Path) -> None:
    run_dir = run_dirs.written(unverified_parent(), tmp_path / "llama-7b")
    (tmp_path / "link").symlink_to(run_dir)
    for path in (run_dir / "checkpoints/a1-step-000050", tmp_path / "link/checkpoints/../checkpoints/a1-step-000050"):
        deed = actions.accept(unverified_parent().state(), "mira", "x", path=str(path), run_dir=run_dir)
        assert deed.data["path"] == "checkpoints/a1-step-000050"


def test_an_unknown_parent_is_accepted_by_its_child() -> None:
    story = History().start(60, known=False, verified=False).audit(61).save(75).audit(100)
    deed = actions.accept_parent(story.state(), "mira", "from the old cluster", attempt=1)
    assert trusts(story.state())[1, 75] == "unverified"
    assert trusts(said(story, deed))[1, 75] == "trusted"


def test_a_parent_whose_bytes_were_not_verified_is_accepted_though_it_is_trusted() -> None:
    story = History().start().save(0).audit(1, phase="first").save(50).audit(50).end(60, "signal")
    story.start(50, (1, 50, story.path(50)), verified=False).audit(51).save(75).audit(100)
    assert trusts(story.state()) == {(1, 0): "trusted", (1, 50): "trusted", (2, 75): "unverified"}
    for deed in (
        actions.accept(story.state(), "mira", "x", path="checkpoints/a1-step-000050", run_dir=None),
        actions.accept_parent(story.state(), "mira", "x", attempt=2),
    ):
        assert deed.data["path"] == "checkpoints/a1-step-000050"
    assert trusts(said(story, deed))[2, 75] == "trusted"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("checkpoints/a1-step-000050", "is trusted: All 6 devices passed a replay at step 50. It needs nobody's word"),
        ("checkpoints/a1-step-000075", r"is suspect: Saved inside window .* Nobody can vouch for it, closed or not"),
        ("elsewhere", "run llama-7b has no checkpoint elsewhere; none of its checkpoints waits for a word"),
    ],
)
def test_what_needs_or_bears_nobodys_word_is_refused(path: str, problem: str) -> None:
    with pytest.raises(ActionError, match=problem):
        actions.accept(run_dirs.still_open().state(), "mira", "x", path=path, run_dir=None)


def test_a_close_says_what_follows_and_opens_no_way_to_vouch_for_what_is_suspect() -> None:
    story = run_dirs.still_open()
    assert "frees no checkpoint" in actions.close_words(story.incident())
    story.act("close", incident=story.incident().id, author="kim", reason="board replaced")
    with pytest.raises(ActionError, match=r"of r-\w+, closed\. Nobody can vouch for it, closed or not; resume from"):
        actions.accept(story.state(), "mira", "x", path="checkpoints/a1-step-000075", run_dir=None)


def test_a_suspicion_is_settled_by_a_close() -> None:
    incident = replace(run_dirs.still_open().incident(), status="suspicious")
    assert "ends the suspicion" in actions.close_words(incident)
    save = run_dirs.still_open().state().checkpoints[-1]
    state = replace(run_dirs.still_open().state(), incidents=(incident,))
    with pytest.raises(ActionError, match=rf"Close {incident.id} if that is settled"):
        actions.accept(state, "mira", "x", path=save.path, run_dir=None)


@pytest.mark.parametrize("shown", ["page", "md", "html", "terminal"])
def test_no_reader_is_told_that_a_closed_incident_covers_nothing(shown: str) -> None:
    story = run_dirs.still_open()
    story.act("close", incident=story.incident().id, author="kim", reason="board replaced")
    state, incident = story.state(), story.incident()
    said = {
        "page": lambda: repr(decision.avoid_panel(state, incident)),
        "md": lambda: render(document.to_document(state, incident), "md"),
        "html": lambda: render(document.to_document(state, incident), "html"),
        "terminal": lambda: "\n".join(incident_lines(incident)),
    }[shown]()
    assert "75" in said
    for claim in ("nothing:", "No checkpoint was saved", "no save lies", "No save lies"):
        assert claim not in said


def test_that_no_checkpoint_lies_in_the_window_is_said_only_where_none_does() -> None:
    nothing = "No checkpoint was saved inside the window."
    assert none_in_doubt("attributed", "closed", False) == nothing
    freed = [("cleared", "closed", False), ("suspicious", "closed", False), ("attributed", "open", True)]
    assert [none_in_doubt(*about) for about in freed if none_in_doubt(*about) == nothing] == []


def test_tainted_bytes_cannot_be_accepted() -> None:
    story = unverified_parent()
    story.write("checkpoint.loaded", path=story.path(75), step=75, checks={"fingerprint": "failed"})
    with pytest.raises(ActionError, match="a2-step-000075 is tainted: Its bytes differ .* Nobody can vouch for it"):
        actions.accept(story.state(), "mira", "x", path=story.path(75), run_dir=None)


@pytest.mark.parametrize(
    ("attempt", "problem"),
    [(1, "attempt 1 began at step 0, from nothing"), (7, "has no attempt 7: give one of 1, 2")],
)
def test_an_attempt_without_such_a_parent_is_refused(attempt: int, problem: str) -> None:
    with pytest.raises(ActionError, match=problem):
        actions.accept_parent(unverified_parent().state(), "mira", "x", attempt=attempt)


def test_a_word_needs_a_reason() -> None:
    with pytest.raises(ActionError, match="accepting a checkpoint needs words"):
        actions.accept(unverified_parent().state(), "mira", "", path="checkpoints/a1-step-000050", run_dir=None)
