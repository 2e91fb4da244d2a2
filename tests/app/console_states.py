"""Hold hand-made run states with the shapes of the demo's incidents, for tests of how the console draws them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lastgood.events import CHECKS, CheckName, Event, source_of
from lastgood.state import (
    Attempt,
    Checkpoint,
    CheckRound,
    CheckStatus,
    Cost,
    Finding,
    Incident,
    LastGood,
    Parent,
    Place,
    RunState,
    Suspect,
    Trust,
    Verdict,
    Window,
)

START = datetime(2026, 11, 29, 2, 32, tzinfo=UTC)
NODES = ("node-a", "node-b", "node-c", "node-d")
CADENCE: dict[str, int | None] = {"finite": 1, "conservation": 1, "replica": 50, "replay": 50, "at_rest": None}
NOT_RUN = {"at_rest": "switched off"}


def at(seconds: float) -> str:
    """Return the journal's time so many seconds after the start."""
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def places(*nodes: str) -> tuple[Place, ...]:
    return tuple(Place(2 * n + slot, node, f"cpu-{slot}", slot) for n, node in enumerate(nodes) for slot in (0, 1))


def attempt(number: int, nodes: tuple[str, ...], start: float, from_step: int, last: int, end: str | None) -> Attempt:
    parent = Parent(number - 1, from_step, path_of(number - 1, from_step)) if number > 1 else None
    stop = at(start + last - from_step)
    return Attempt(
        number=number,
        world_size=2 * len(nodes),
        places=places(*nodes),
        parent=parent,
        parent_known=True,
        parent_verified=True,
        from_step=from_step,
        started_at=at(start),
        last_event_at=stop,
        last_step=last,
        last_step_at=stop,
        ended_at=stop if end else None,
        end_reason=end,
        exit_code=0 if end == "completed" else 1 if end else None,
        cadence=CADENCE,
        not_run=NOT_RUN,
        versions={"torch": "2.13.0"},
    )


def path_of(attempt_number: int, step: int) -> str:
    return f"checkpoints/a{attempt_number}-step-{step:06}"


def checkpoint(number: int, step: int, seconds: float, trust: Trust, reason: str, covered: str = "") -> Checkpoint:
    parent = Parent(number, max(0, step - 25), path_of(number, max(0, step - 25)))
    return Checkpoint(
        attempt=number,
        step=step,
        path=path_of(number, step),
        saved_at=at(seconds),
        parent=parent,
        parent_known=True,
        bytes=2_411_520,
        seconds=0.04,
        blocked_seconds=0.05,
        fingerprint=f"{step * 7919 + number:016x}e07c5b19302d9ffa",
        checks={"finite": "passed", "conservation": "passed", "replica": "passed"},
        trust=trust,
        reason=reason,
        covered_by=(covered,) if covered else (),
    )


def round_of(check: CheckName, phase: str, number: int, step: int, seconds: float, failed: bool = False) -> CheckRound:
    state_step = step - 1 if check == "replica" and phase == "loop" else step
    return CheckRound(check, phase, number, step, state_step, at(seconds), "failed" if failed else "passed", "")


def statuses(step: int, replay: int, replica: int) -> tuple[CheckStatus, ...]:
    passed = {"finite": step, "conservation": step, "replica": replica, "replay": replay, "at_rest": -1}
    return tuple(
        CheckStatus(
            check=check,
            running=check != "at_rest",
            reason="" if check != "at_rest" else "switched off",
            interval_steps=CADENCE[check],
            last_pass_step=passed[check],
            last_pass_at=at(passed[check]) if passed[check] >= 0 else None,
            due_step=None if check == "at_rest" else passed[check] + 3 * (CADENCE[check] or 0),
            failures=int(check == "replay"),
        )
        for check in CHECKS
    )


def peers() -> dict[str, object]:
    steps = list(range(1, 101))
    median = [1.8 + 0.4 / (1 + s / 20) for s in steps]
    wave = [((s * 37) % 11 - 5) / 250 for s in steps]
    lift = [0.11 if s >= 67 else 0.0 for s in steps]
    return {
        "kind": "peers",
        "text": "Local gradient norm of rank 3 against its peers.",
        "rank": 3,
        "steps": steps,
        "suspect": [m * (1 + w + x) for m, w, x in zip(median, wave, lift, strict=True)],
        "median": median,
        "p10": [m * 0.96 for m in median],
        "p90": [m * 1.045 for m in median],
    }


def gradient_finding() -> Finding:
    evidence = (
        {"kind": "replay", "text": "Rank 5 (node-c) replayed the batch of rank 3 and found another gradient.",
         "owner": 3, "partner": 5},
        {"kind": "arbiter", "text": "Rank 0 (node-a) replayed it too and sided with rank 5.", "rank": 0},
        {"kind": "tensor", "text": "First tensor that differs: blocks.1.mlp.up.weight."},
        peers(),
    )  # fmt: skip
    return Finding(
        id="f-1f2e3d4c5b6a7988",
        check="replay",
        attempt=1,
        step=100,
        state_step=100,
        phase="audit",
        contained=False,
        ranks=(3,),
        places=(Place(3, "node-b", "cpu-1", 1),),
        tensor="blocks.1.mlp.up.weight",
        bucket=None,
        observed="9f3177c0e2a41b08",
        expected="41d20c9e55f7a310",
        evidence=evidence,
        at=at(102),
        window=WINDOW,
    )


SAME_NAN = {"kind": "replay", "text": "Rank 5 (node-c) got NaN from the same batch."}
RESTART = {"reason": "integrity", "seconds": 26.0, "lost_steps": 50, "excluded_nodes": ["node-b"]}
WINDOW = Window(1, 50, 1, 100, False, "replay of this device last passed at step 50")
ACCUSED = Suspect(3, "node-b", "cpu-1", 1, "accused")
RESUME = LastGood(1, 50, path_of(1, 50), "trusted", "All six devices passed a replay at step 50.")


def gradient_verdict() -> Verdict:
    return Verdict(
        id="v-1f2e3d4c5b6a7988",
        attempt=1,
        step=100,
        at=at(103),
        findings=("f-1f2e3d4c5b6a7988",),
        status="attributed",
        scope="gpu",
        suspects=(ACCUSED,),
        nature="persistent",
        confidence="exact",
        reasons_for=(
            "Replay at step 100: rank 5 (node-c) disagreed with rank 3.",
            "Rank 0 (node-a) settled it and sided with rank 5, on 2 of 2 batches.",
        ),
        reasons_against=("Rank 3 agreed with its own second run.",),
        resume=RESUME,
        action="stop",
    )


def gradient_incident(recovered: bool) -> Incident:
    verdict = gradient_verdict()
    return Incident(
        id="r-3f2a91c0",
        aliases=(),
        run="demo",
        state="recovered" if recovered else "open",
        status="attributed",
        scope="gpu",
        suspects=(ACCUSED,),
        nature="persistent",
        confidence="exact",
        check="replay",
        attempt=1,
        step=100,
        findings=(gradient_finding(),),
        verdicts=(verdict,),
        window=WINDOW,
        reasons_for=verdict.reasons_for,
        reasons_against=verdict.reasons_against,
        unknown=("The first wrong step: replay passed at 50 and failed at 100, so any of 51 to 100.",),
        resume=RESUME,
        covered=((1, 75, path_of(1, 75)),),
        opened_at=at(103),
        recovered_at=at(185) if recovered else None,
        recovered_by=2 if recovered else None,
        closed_at=None,
        closed_by=None,
        cost=Cost(50, 92.0, 0.153, not recovered),
    )


def gradient(recovered: bool = True) -> RunState:
    """Return the demo's default story: rank 3 accused, step 75 suspect, attempt 2 without node-b."""
    first = attempt(1, NODES[:3], 0, 0, 100, "integrity")
    second = attempt(
        2, ("node-a", "node-c", "node-d"), 130, 50, 150 if recovered else 96, "completed" if recovered else None
    )
    audited, waiting = "audited at steps 51 and 100", "no replay passed at or after step 75 yet"
    newest: tuple[Trust, str] = ("trusted", audited) if recovered else ("unverified", waiting)
    saves = [
        checkpoint(1, 0, 0, "trusted", "start of the run"),
        checkpoint(1, 25, 25, "trusted", "audited at steps 1 and 50"),
        checkpoint(1, 50, 50, "trusted", "all six devices passed a replay at step 50"),
        checkpoint(1, 75, 75, "suspect", "inside window (50, 100] of r-3f2a91c0", "r-3f2a91c0"),
        checkpoint(2, 75, 156, *newest),
    ]  # fmt: skip
    if recovered:
        saves += [checkpoint(2, s, 106 + s, "trusted", "audited at steps 100 and 150") for s in (100, 125, 150)]
    rounds = [
        round_of("replay", "first", 1, 1, 1),
        round_of("replica", "loop", 1, 50, 50),
        round_of("replay", "audit", 1, 50, 51),
    ]
    rounds += [round_of("replica", "save", 1, s, s) for s in (25, 50, 75)]
    rounds += [round_of("replica", "loop", 1, 100, 101), round_of("replay", "audit", 1, 100, 102, failed=True)]
    rounds += [round_of("replay", "first", 2, 51, 132), round_of("replica", "save", 2, 75, 156)]
    if recovered:
        rounds += [round_of("replay", "audit", 2, s, 82 + s) for s in (100, 150)]
    now = second.last_event_at
    return RunState(
        run="demo",
        attempts=(first, second),
        rounds=tuple(rounds),
        checks=statuses(second.last_step, 150 if recovered else 51, 150 if recovered else 75),
        findings=(gradient_finding(),),
        verdicts=(gradient_verdict(),),
        incidents=(gradient_incident(recovered),),
        checkpoints=tuple(saves),
        failed_saves=(),
        injections=(event("injection", 67, 1, {"site": "backward", "fault": "scale", "step": 67, "rank": 3}),),
        restarts=(event("restart", 104, 2, RESTART),),
        annotations=(),
        last_good=LastGood(2, 150, path_of(2, 150), "trusted", "newest trusted") if recovered else RESUME,
        first_event_at=at(0),
        last_event_at=now,
        event_count=61,
        events_digest="5f0c91ab77d2e83c" * 4,
    )  # fmt: skip


def event(kind: str, seconds: float, number: int, data: dict[str, object]) -> Event:
    return Event(f"0-{kind}", source_of("demo", number, 0), kind, at(seconds), "demo", number, data)


def undecided() -> RunState:
    """Return the two-node story: two candidates, nobody accused, no second attempt."""
    base = gradient(recovered=False)
    candidates = (Suspect(1, "node-a", "cpu-1", 1, "candidate"), Suspect(3, "node-b", "cpu-1", 1, "candidate"))
    first = replace(attempt(1, NODES[:2], 0, 0, 100, "integrity"))
    finding = replace(
        gradient_finding(), ranks=(1, 3), places=tuple(Place(s.rank, s.node, s.gpu_uuid, s.slot) for s in candidates)
    )
    incident = replace(
        base.incidents[0],
        id="r-41c07d55",
        run="two-nodes",
        status="undecided",
        suspects=candidates,
        nature="unknown",
        confidence="low",
        findings=(finding,),
        reasons_for=("Replay at step 100: rank 1 (node-a) and rank 3 (node-b) disagree.",),
        reasons_against=("Both agreed with their own second runs; no third node could settle it.",),
        cost=Cost(50, 52.0, 0.06, True),
    )
    saves = tuple(
        replace(
            c, covered_by=("r-41c07d55",) if c.covered_by else (), reason=c.reason.replace("r-3f2a91c0", "r-41c07d55")
        )
        for c in base.checkpoints
        if c.attempt == 1
    )
    return replace(
        base,
        run="two-nodes",
        attempts=(first,),
        rounds=tuple(r for r in base.rounds if r.attempt == 1),
        checks=statuses(100, 50, 100),
        findings=(finding,),
        incidents=(incident,),
        checkpoints=saves,
        restarts=(),
        injections=(),
        last_event_at=first.last_event_at,
    )  # fmt: skip


def cleared() -> RunState:
    """Return the data story: a non-finite loss that came back on another node."""
    base = clean("bad-data")
    window = Window(1, 66, 1, 67, True, "the step was skipped on all ranks")
    finding = replace(
        gradient_finding(), check="finite", step=67, state_step=67, phase="loss", contained=True, tensor=None,
        observed="nan", expected="finite", evidence=(SAME_NAN,),
        at=at(68), window=window,
    )  # fmt: skip
    incident = replace(
        gradient_incident(True),
        id="r-77b0aa12",
        run="bad-data",
        state="closed",
        status="cleared",
        scope="job",
        suspects=(),
        nature="unknown",
        check="finite",
        step=67,
        findings=(finding,),
        verdicts=(),
        window=window,
        reasons_for=("The same batch gave NaN on rank 5 (node-c).",),
        reasons_against=(),
        unknown=(),
        resume=None,
        covered=(),
        opened_at=at(68),
        recovered_at=None,
        recovered_by=None,
        closed_at=at(69),
        closed_by="cleared",
        cost=Cost(1, 1.0, 0.002, False),
    )
    return replace(base, findings=(finding,), incidents=(incident,))


def clean(run: str = "quiet", ended: bool = True) -> RunState:
    """Return a run without a finding: saves every 25 steps, audited to the end."""
    only = attempt(1, NODES[:3], 0, 0, 150, "completed" if ended else None)
    saves = tuple(checkpoint(1, s, s, "trusted", "audited on both sides") for s in range(0, 151, 25))
    rounds = [round_of("replay", "audit", 1, s, s + 1) for s in (50, 100, 150)]
    rounds += [round_of("replica", "save", 1, s, s) for s in range(25, 151, 25)]
    return RunState(
        run=run,
        attempts=(only,),
        rounds=tuple(rounds),
        checks=statuses(150, 150, 150),
        findings=(),
        verdicts=(),
        incidents=(),
        checkpoints=saves,
        failed_saves=(),
        injections=(),
        restarts=(),
        annotations=(),
        last_good=LastGood(1, 150, path_of(1, 150), "trusted", "newest trusted"),
        first_event_at=at(0),
        last_event_at=only.last_event_at,
        event_count=40,
        events_digest="00" * 32,
    )


def late() -> RunState:
    """Return a run whose replay is overdue: its newest saves are unverified."""
    base = clean("vit-h-ablation", ended=False)
    first = replace(base.attempts[0], last_step=8114, world_size=64)
    saves = tuple(
        checkpoint(1, s, s / 10, "trusted" if s < 7000 else "unverified", "no replay passed at or after it yet")
        for s in (5000, 6000, 7000, 8000)
    )
    saves = (*saves[:3], replace(saves[3], trust="unreadable", reason="no record beside the path"))
    checks = tuple(
        replace(c, due_step=7600, last_pass_step=7000)
        if c.check == "replay"
        else replace(c, last_pass_step=8100, due_step=8250)
        if c.running
        else c
        for c in base.checks
    )
    good = LastGood(1, 7000, path_of(1, 7000), "unverified", "no replay passed since")
    return replace(base, attempts=(first,), checkpoints=saves, checks=checks, last_good=good)


def empty(run: str = "just-started") -> RunState:
    """Return a run that has started and saved nothing."""
    base = clean(run, ended=False)
    only = replace(base.attempts[0], last_step=0)
    good = LastGood(-1, -1, "", "missing", "Nothing saved yet. Resume is possible from step 0 only.")
    return replace(base, attempts=(only,), rounds=(), checkpoints=(), checks=statuses(0, -1, -1), last_good=good)
