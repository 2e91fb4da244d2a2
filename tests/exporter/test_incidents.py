"""Incidents: what belongs together, what it is called, what the verdicts say, and how it ends."""

from __future__ import annotations

import re

import pytest
from tests.exporter.histories import History, trusts, window

from lastgood.events import Status
from lastgood.incidents import incident_id
from lastgood.state import Incident, Word

AT_50 = (1, 50, "checkpoints/a1-step-000050")
AUDIT = ("replay", 100, "audit")
SPARE = ("node-a", "node-d", "node-c")
DAY = 86_400


def found(rank: int = 3, **verdict: object) -> History:
    history = History().start().save(0).audit(1, phase="first").save(50).audit(50).save(75)
    history.audit(100, failed=[rank]).find("replay", 100, [rank])
    said = {"accused": [rank], "nature": "persistent", "resume": AT_50} | verdict
    return history.rule("attributed", AUDIT, **said)  # type: ignore[arg-type]


def again(history: History, later: float = 0.0, nodes: tuple[str, ...] = ("node-a", "node-b", "node-c")) -> History:
    """Attempt 2 keeps the device, passes its first replay, and fails once more."""
    history.end(100).start(50, AT_50, nodes=nodes).audit(51, phase="first").wait(later)
    history.audit(150, failed=[3]).find("replay", 150, [3])
    return history.rule("attributed", ("replay", 150, "audit"), accused=[3], resume=AT_50)


# --- what belongs together, and its name -----------------------------------------------------------------------------


def test_the_id_is_a_short_hash_of_run_attempt_step_and_check() -> None:
    incident = found().incident()
    assert re.fullmatch(r"r-[0-9a-f]{8}", incident.id)
    assert incident.id == incident_id("llama-7b", incident.findings[0])
    assert incident.aliases == ()


def test_one_device_that_fails_again_within_a_day_of_the_restart_is_one_incident() -> None:
    incident = again(found(), DAY - 600).incident()
    assert [(f.attempt, f.step) for f in incident.findings] == [(1, 100), (2, 150)]
    assert window(incident) == (1, 50, 1, 100, False)


def test_one_device_that_fails_again_later_is_another_incident() -> None:
    assert len(again(found(), DAY + 600).state().incidents) == 2


def test_another_device_after_the_restart_is_another_incident() -> None:
    assert len(again(found(), nodes=SPARE).state().incidents) == 2


def test_windows_that_only_touch_on_different_devices_are_two_incidents() -> None:
    history = History().start().find("finite", 67, [1], phase="local", contained=True)
    assert len(history.find("finite", 68, [3], phase="local", contained=True).state().incidents) == 2


def test_one_device_that_fails_step_after_step_is_one_incident() -> None:
    history = History().start()
    for step in (67, 68, 69):
        history.find("finite", step, [3], phase="local", contained=True)
    assert len(history.incident().findings) == 3


def test_a_finding_that_arrives_late_becomes_the_first_and_the_old_id_stays_as_an_alias() -> None:
    history = History().start().save(0).audit(1).audit(67, phase="immediate", failed=[3])
    history.find("replay", 67, [3], phase="immediate")
    shown = history.incident().id
    history.find("finite", 67, [3], phase="local", contained=True)
    incident = history.incident()
    assert (incident.check, incident.aliases) == ("finite", (shown,))
    assert incident.id != shown


def test_incidents_come_newest_first() -> None:
    history = History().start().find("finite", 10, [1], phase="local", contained=True)
    state = history.find("finite", 50, [3], phase="local", contained=True).state()
    assert [i.step for i in state.incidents] == [50, 10]


# --- what the verdicts say -------------------------------------------------------------------------------------------


def test_a_finding_without_a_verdict_is_suspicious_and_accuses_nobody() -> None:
    incident = History().start().audit(1).find("replay", 100, [3]).incident()
    assert (incident.status, incident.confidence, incident.verdicts) == ("suspicious", "low", ())
    assert [(s.rank, s.role) for s in incident.suspects] == [(3, "candidate")]
    assert incident.reasons_for == ("Replay failed at step 100 on rank 3 (node-b).", "Rank 5 (node-c) disagreed.")
    assert incident.reasons_against == ("Nothing known.",)


def test_the_newest_verdict_on_a_finding_stands() -> None:
    history = History().start().audit(1).find("replay", 100, [3])
    history.rule("suspicious", AUDIT, action="record").rule("attributed", AUDIT, accused=[3])
    assert history.incident().status == "attributed"
    assert history.rule("cleared", AUDIT, at_step=100, scope="job").incident().status == "cleared"


def test_a_cleared_finding_keeps_to_its_own_kind_and_covers_nothing() -> None:
    history = History().start().save(0).audit(1).find("finite", 67, [3], phase="local")
    history.rule("cleared", ("finite", 67, "local"), scope="job", action="record").save(75)
    assert trusts(history.state())[1, 75] == "unverified"
    history.audit(100, failed=[3]).find("replay", 100, [3]).rule("attributed", AUDIT, accused=[3])
    assert [(i.check, i.status, i.state) for i in history.state().incidents] == [
        ("replay", "attributed", "open"),
        ("finite", "cleared", "closed"),
    ]
    assert trusts(history.state())[1, 75] == "suspect"


def test_the_strongest_verdict_gives_the_status() -> None:
    history = History().start().save(0).audit(1).find("replica", 50, [1], phase="loop", state_step=49)
    history.rule("undecided", ("replica", 50, "loop"), candidates=[0, 1], action="record")
    history.find("replay", 60, [3]).rule("attributed", ("replay", 60, "audit"), accused=[3])
    incident = history.incident()
    assert (incident.status, [s.rank for s in incident.suspects]) == ("attributed", [3])
    assert window(incident) == (1, 0, 1, 60, False)


def test_a_verdict_names_findings_of_its_own_attempt_only() -> None:
    history = found().end(100).start(50, AT_50, nodes=SPARE).audit(100, failed=[3]).find("replay", 100, [3])
    assert [i.status for i in history.state().incidents] == ["suspicious", "attributed"]


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("attributed", "Whether it comes back: the device was not tried again on the same numbers."),
        ("undecided", "Which of the 2 candidates it was."),
        ("suspicious", "Whether the data, the software or a device is the cause: it was not replayed on another node."),
        ("confirmed", "Which rank or link it was: no rank stands out."),
    ],
)
def test_what_is_unknown_is_said(status: str, sentence: str) -> None:
    history = History().start().audit(99).find("replay", 100, [1, 3])
    names = {"attributed": {"accused": [3]}, "undecided": {"candidates": [1, 3]}}.get(status, {})
    assert history.rule(status, AUDIT, **names).incident().unknown == (sentence,)  # type: ignore[arg-type]


def test_nothing_unknown_is_said_too() -> None:
    history = History().start().audit(99).find("replay", 100, [3])
    assert history.rule("attributed", AUDIT, accused=[3], nature="persistent").incident().unknown == ("Nothing known.",)


def test_candidates_beside_an_accused_device_are_not_its_suspects() -> None:
    assert [s.rank for s in found(candidates=[2, 4]).incident().suspects] == [3]


# --- closed, recovered, reopened -------------------------------------------------------------------------------------


def states(incident: Incident) -> tuple[str, str, int | None]:
    return (incident.state, incident.status, incident.recovered_by)


def test_an_attempt_that_resumed_after_the_resume_step_does_not_recover() -> None:
    history = found().end(100).start(75, (1, 75, "checkpoints/a1-step-000075"), nodes=SPARE).audit(76)
    assert states(history.incident()) == ("open", "attributed", None)


def test_an_attempt_that_started_over_recovers() -> None:
    assert states(found().end(100).start(nodes=SPARE).audit(1).incident()) == ("recovered", "attributed", 2)


def test_an_attempt_that_has_not_passed_the_check_yet_does_not_recover() -> None:
    history = found().end(100).start(50, AT_50, nodes=SPARE)
    assert history.incident().state == "open"
    assert history.audit(51, not_run=[0]).incident().state == "open"
    incident = history.audit(100, not_run=[1]).incident()
    assert (incident.state, incident.recovered_by) == ("recovered", 2)
    assert incident.recovered_at == history.events[-1].time


def test_a_check_of_every_step_is_passed_by_a_save_that_says_so_or_by_a_completed_attempt() -> None:
    history = (
        History().start().save(0).audit(1).save(50).audit(50).find("conservation", 67, phase="reduce", contained=True)
    )
    history.rule("confirmed", ("conservation", 67, "reduce"), scope="job", resume=AT_50).end(67).start(50, AT_50)
    assert history.audit(51).save(60, checks={"conservation": "not_run"}).incident().state == "open"
    assert history.end(150, "signal").incident().state == "open"
    history.events.pop()
    assert history.end(150, "completed").incident().state == "recovered"


def test_new_evidence_after_the_recovery_reopens() -> None:
    history = again(found())
    assert states(history.incident()) == ("reopened", "attributed", None)
    history.end(150).start(50, AT_50, nodes=SPARE).audit(51)
    assert states(history.incident()) == ("recovered", "attributed", 3)


def test_a_person_closes_and_what_a_check_proved_still_stands() -> None:
    history = found()
    assert trusts(history.state())[1, 75] == "suspect"
    history.act("close", incident=history.incident().id, by="mira", cause="cable replaced")
    incident = history.incident()
    assert (incident.state, incident.closed_by, incident.closed_at) == ("closed", "mira", history.events[-1].time)
    save = next(c for c in history.state().checkpoints if c.step == 75)
    assert (save.trust, save.reason) == ("suspect", f"Saved inside window (50, 100] of {incident.id}, closed.")
    assert (1, 75, save.path) in incident.covered
    assert history.state().last_good.step == 50
    assert [e.data["action"] for e in incident.actions] == ["close"]


@pytest.mark.parametrize(
    ("status", "trust"),
    [("attributed", "suspect"), ("confirmed", "suspect"), ("undecided", "suspect"), ("suspicious", "unverified"),
     ("cleared", "unverified")],
)  # fmt: skip
def test_a_close_frees_the_saves_of_a_suspicion_only(status: Status, trust: str) -> None:
    history = found(action="record")
    history.rule(status, AUDIT, accused=[3] if status == "attributed" else [], at_step=101)
    history.act("close", incident=history.incident().id, author="mira", reason="cable replaced")
    assert (history.incident().state, history.incident().status) == ("closed", status)
    assert trusts(history.state())[1, 75] == trust


def test_new_evidence_after_a_person_closed_it_reopens_and_covers_again() -> None:
    history = found(action="record")
    history.act("close", incident=history.incident().id, by="mira")
    history.audit(150, failed=[3]).find("replay", 150, [3]).rule("attributed", ("replay", 150, "audit"), accused=[3])
    assert history.incident().state == "reopened"
    assert trusts(history.state())[1, 75] == "suspect"


def test_notes_and_actions_are_kept_under_every_name_of_the_incident() -> None:
    history = History().start().audit(1).find("replay", 67, [3], phase="immediate")
    old = history.incident().id
    history.find("finite", 67, [3], phase="local", contained=True)
    history.act("acknowledge", incident=old, by="mira").act("note", incident=history.incident().id, by="mira")
    assert [e.data["action"] for e in history.incident().actions] == ["acknowledge", "note"]


def contained(action: str = "stop") -> History:
    history = History().start().save(0).audit(1).save(50).audit(50).save(60)
    history.find("conservation", 67, phase="reduce", contained=True)
    return history.rule("confirmed", ("conservation", 67, "reduce"), scope="job", resume=AT_50, action=action)


def test_a_contained_step_that_stopped_the_run_needs_an_attempt_from_the_resume_step() -> None:
    later = contained().end(67).start(60, (1, 60, "checkpoints/a1-step-000060")).audit(61).save(75)
    assert later.incident().state == "open"
    assert contained().end(67).start(50, AT_50).audit(51).save(75).incident().state == "recovered"
    assert contained().save(75).incident().state == "open"


def test_a_contained_step_that_was_skipped_is_recovered_by_the_same_attempt_when_it_passes_again() -> None:
    history = contained("skip")
    assert history.incident().state == "open"
    assert history.save(75, checks={"conservation": "not_run"}).incident().state == "open"
    assert states(history.save(80).incident()) == ("recovered", "confirmed", 1)


def test_a_pass_before_the_skipped_step_does_not_recover() -> None:
    history = History().start().audit(60, check="finite").find("finite", 67, [3], phase="local", contained=True)
    assert history.incident().state == "open"
    assert history.audit(70, check="finite").incident().state == "recovered"


def test_every_check_that_failed_has_to_be_passed() -> None:
    history = History().start().save(0).audit(1).save(50).audit(50).audit(67, phase="immediate", failed=[3])
    history.find("finite", 67, [3], phase="local", contained=True).find("replay", 67, [3], phase="immediate")
    both = ("finite", 67, "local"), ("replay", 67, "immediate")
    history.rule("attributed", *both, accused=[3], resume=AT_50).end(67).start(50, AT_50, nodes=SPARE).audit(51)
    assert history.incident().state == "open"
    assert history.save(60).incident().state == "recovered"


def test_an_unknown_past_that_a_person_accepted_can_recover() -> None:
    history = found().end(100).start(40, known=False, verified=False, nodes=SPARE).audit(41)
    assert history.incident().state == "open"
    history.act("accept_checkpoint", attempt=2, step=40, path="/else/40", by="mira")
    assert history.incident().state == "recovered"


# --- the resume step and the cost ------------------------------------------------------------------------------------


def test_the_resume_step_is_frozen_at_the_verdict() -> None:
    history = found().end(100).start(50, AT_50, nodes=SPARE).audit(51).save(75).audit(100)
    assert history.state().last_good.step == 75
    assert history.incident().resume is not None
    assert history.incident().resume.step == 50  # type: ignore[union-attr]


@pytest.mark.parametrize("word", ["missing", "unreadable"])
def test_an_open_incident_whose_resume_checkpoint_is_gone_names_the_last_good(word: str) -> None:
    history = History().start().save(0).audit(1).save(25).save(50).audit(50).save(75).audit(100, failed=[3])
    history.find("replay", 100, [3]).rule("attributed", AUDIT, accused=[3], resume=AT_50).end(100)
    state = history.state(present={history.path(50): word})
    (incident,) = state.incidents
    assert (state.last_good.step, state.last_good.trust) == (25, "trusted")
    assert incident.resume == state.last_good
    assert [v.resume.step for v in incident.verdicts if v.resume] == [50]


def test_an_open_incident_whose_resume_checkpoint_is_tainted_names_the_last_good() -> None:
    history = History().start().save(0).audit(1).save(25).save(50).audit(50).audit(100, failed=[3])
    history.find("replay", 100, [3]).rule("attributed", AUDIT, accused=[3], resume=AT_50).end(100)
    history.write("checkpoint.loaded", path=history.path(50), step=50, checks={"fingerprint": "failed"})
    incident = history.incident()
    assert incident.resume is not None
    assert (incident.resume.step, incident.resume.trust) == (25, "trusted")


def test_an_incident_that_is_over_keeps_its_resume_checkpoint_with_its_trust_as_it_is_now() -> None:
    history = found().end(100).start(50, AT_50, nodes=SPARE).audit(51).save(75).audit(100)
    (incident,) = history.state(present={"checkpoints/a1-step-000050": "missing"}).incidents
    assert incident.state == "recovered"
    assert incident.resume is not None
    assert (incident.resume.step, incident.resume.trust) == (50, "missing")
    assert incident.resume.reason == "Journaled as saved; the path is gone."


def test_without_a_verdict_the_resume_step_is_what_was_known_at_the_finding() -> None:
    history = History().start().save(0).audit(1).save(50).audit(50).save(75).find("replay", 100, [3])
    resume = history.incident().resume
    assert resume is not None
    assert (resume.step, resume.trust) == (50, "trusted")


def test_what_was_saved_after_the_verdict_is_not_what_was_known_then() -> None:
    history = History().start(not_run={"replay": "switched off"}).save(0).save(50)
    history.find("conservation", 67, phase="reduce", contained=True)
    resume = history.rule("confirmed", ("conservation", 67, "reduce"), scope="job").save(75).incident().resume
    assert resume is not None
    assert (resume.step, resume.trust) == (50, "unverified")


def test_with_nothing_to_resume_from_an_attempt_from_inside_the_window_does_not_recover() -> None:
    history = History().start().audit(50).save(75).audit(100, failed=[3]).find("replay", 100, [3])
    history.rule("attributed", AUDIT, accused=[3]).end(100)
    history.start(75, (1, 75, "checkpoints/a1-step-000075"), nodes=SPARE).audit(76)
    incident = history.incident()
    assert incident.resume is not None
    assert (incident.resume.exists, incident.state) == (False, "open")


def test_a_resume_step_that_a_later_finding_covers_is_worked_out_anew() -> None:
    history = History().start().save(0).audit(1).save(25).audit(25).save(50).audit(50, not_run=[1])
    history.audit(100, failed=[3], not_run=[1]).find("replay", 100, [3]).rule(
        "attributed", AUDIT, accused=[3], resume=AT_50
    )
    history.audit(101, failed=[1]).find("replay", 101, [1], phase="immediate")
    incident = history.incident()
    assert window(incident) == (1, 25, 1, 101, False)
    assert incident.resume is not None
    assert (incident.resume.step, trusts(history.state())[1, 50]) == (25, "suspect")


def test_the_cost_runs_from_the_save_of_the_resume_step_to_the_start_of_the_attempt_that_recovered() -> None:
    history = found()
    saved = next(e.time for e in history.events if e.type == "checkpoint.saved" and e.step == 50)
    rising = history.incident().cost
    assert (rising.steps, rising.rising, rising.device_hours) == (50, True, pytest.approx(rising.seconds * 6 / 3600))
    history.end(100).wait(3600).start(50, AT_50, nodes=SPARE).wait(60).audit(51)
    began = next(e.time for e in history.events if e.type == "run.started" and e.attempt == 2)
    cost = history.incident().cost
    assert cost.seconds == pytest.approx(seconds(began) - seconds(saved))
    assert not cost.rising


def seconds(time: str) -> float:
    hours, minutes, rest = time[11:-1].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


# --- a re-run elsewhere ----------------------------------------------------------------------------------------------

SAME = "00112233445566778899aabbccddeeff"


def rerun(nodes: tuple[str, ...], fingerprint: str) -> History:
    history = History().start().save(0).audit(1).save(50).audit(50).save(75, fingerprint=SAME).save(90)
    history.audit(100, failed=[3]).find("replay", 100, [3]).rule("attributed", AUDIT, accused=[3], resume=AT_50)
    return history.end(100).start(50, AT_50, nodes=nodes).audit(51).save(75, fingerprint=fingerprint)


def test_a_rerun_on_other_devices_with_the_same_bits_moves_the_window() -> None:
    history = rerun(SPARE, SAME)
    assert window(history.incident()) == (1, 75, 1, 100, False)
    assert trusts(history.state()) == {
        (1, 0): "trusted",
        (1, 50): "trusted",
        (1, 75): "unverified",
        (1, 90): "suspect",
        (2, 75): "unverified",
    }


@pytest.mark.parametrize(
    ("nodes", "fingerprint"), [(SPARE, "ff" * 16), (("node-a", "node-b", "node-c"), SAME)], ids=["bits", "device"]
)
def test_other_bits_or_the_same_device_prove_nothing(nodes: tuple[str, ...], fingerprint: str) -> None:
    assert window(rerun(nodes, fingerprint).incident()) == (1, 50, 1, 100, False)


def test_a_rerun_that_began_inside_the_window_proves_nothing() -> None:
    history = History().start().save(0).audit(1).save(50).audit(50).save(60).save(75, fingerprint=SAME)
    history.audit(100, failed=[3]).find("replay", 100, [3]).rule("attributed", AUDIT, accused=[3], resume=AT_50)
    history.end(100).start(60, (1, 60, "checkpoints/a1-step-000060"), nodes=SPARE).save(75, fingerprint=SAME)
    assert window(history.incident()) == (1, 50, 1, 100, False)


def test_a_rerun_with_an_unknown_past_proves_nothing() -> None:
    history = History().start().save(0).audit(1).save(50).audit(50).save(75, fingerprint=SAME)
    history.audit(100, failed=[3]).find("replay", 100, [3]).rule("attributed", AUDIT, accused=[3], resume=AT_50)
    history.end(100).start(60, known=False, verified=False, nodes=SPARE).save(75, fingerprint=SAME)
    assert window(history.incident()) == (1, 50, 1, 100, False)


def test_the_cost_ends_with_training_whatever_people_write_later() -> None:
    history = found()
    name, before = history.incident().id, history.incident().cost.seconds
    history.wait(32 * 3600).act("note", incident=name, author="mira", text="looking")
    assert history.incident().cost.seconds == before
    history.act("close", incident=name, author="mira", reason="board replaced")
    assert history.incident().cost.seconds == before


def test_a_reopened_incident_tells_since_when_it_is() -> None:
    history = found()
    name = history.incident().id
    assert history.incident().reopened_at is None
    history.act("close", incident=name, author="mira", reason="x").wait(32 * 3600)
    history.act("reopen", incident=name, author="kim", reason="y")
    assert history.incident().reopened_at == history.events[-1].time


# --- what people say -------------------------------------------------------------------------------------------------


def test_a_person_reopens_what_a_person_closed_and_it_covers_again() -> None:
    history = found()
    name = history.incident().id
    history.act("close", incident=name, author="mira", reason="cable replaced")
    history.act("reopen", incident=name, author="kim", reason="it was not the cable")
    assert (history.incident().state, history.incident().closed_by) == ("reopened", None)
    assert trusts(history.state())[1, 75] == "suspect"
    history.act("close", incident=name, author="kim", reason="board replaced")
    assert (history.incident().state, history.incident().closed_by) == ("closed", "kim")


def test_a_person_reopens_what_an_attempt_recovered_from() -> None:
    history = found().end(100).start(50, AT_50, nodes=SPARE).audit(51).save(75).audit(100)
    assert history.incident().state == "recovered"
    history.act("reopen", incident=history.incident().id, author="kim", reason="the loss still jumps")
    assert (history.incident().state, history.incident().recovered_by) == ("reopened", 2)


def test_reopening_what_is_open_or_cleared_changes_nothing() -> None:
    history = found(action="record")
    assert history.act("reopen", incident=history.incident().id, author="kim").incident().state == "open"
    history.rule("cleared", ("replay", 100, "audit"), at_step=101).act("reopen", incident=history.incident().id)
    assert (history.incident().state, history.incident().closed_by) == ("closed", "cleared")


def test_an_acknowledgement_holds_until_the_incident_is_reopened() -> None:
    history = found(action="record")
    name = history.incident().id
    assert history.incident().acknowledged is None
    history.act("acknowledge", incident=name, author="mira")
    said = history.incident().acknowledged
    assert said == Word("mira", history.events[-1].time, "")
    history.act("close", incident=name, author="mira").act("reopen", incident=name, author="kim")
    assert history.incident().acknowledged is None
    history.act("acknowledge", incident=name, author="kim", reason="looking")
    assert history.incident().acknowledged == Word("kim", history.events[-1].time, "looking")


def test_new_evidence_after_a_close_asks_for_another_acknowledgement() -> None:
    history = found(action="record")
    name = history.incident().id
    history.act("acknowledge", incident=name, author="mira").act("close", incident=name, author="mira")
    history.audit(150, failed=[3]).find("replay", 150, [3]).rule("attributed", ("replay", 150, "audit"), accused=[3])
    assert (history.incident().state, history.incident().acknowledged) == ("reopened", None)


def test_the_newest_cause_counts() -> None:
    history = found()
    name = history.incident().id
    history.act("cause", incident=name, author="mira", reason="cable").act(
        "cause", incident=name, author="kim", reason="PSU"
    )
    assert history.incident().cause == Word("kim", history.events[-1].time, "PSU")


def test_what_people_say_makes_no_dead_run_look_alive_and_costs_nothing() -> None:
    history = found(action="record")
    before = history.state()
    history.wait(90_000).act("note", incident=before.incidents[0].id, author="mira")
    history.write("note", text="x", author="mira", incident=before.incidents[0].id)
    after = history.state()
    assert (after.last_event_at, after.incidents[0].cost) == (before.last_event_at, before.incidents[0].cost)
