"""Cases of the rules about the progress of a run."""

from __future__ import annotations

from typing import Final

from tests.alerts.cases_checkpoints import CLEAN, NONE_GOOD, STEP_THEN, dead, ended, of_run
from tests.alerts.promtool_cases import Alert, Case
from tests.alerts.world import NOT_A_NUMBER, NOW, RUN, STEP_SECONDS, World, healthy, rank_series, rising

from lastgood.events import CHECKS

AT: Final = 900


def stale(value: float, check: str = "replay", run: str = RUN, passed: str = "90", **sides: str) -> Alert:
    return Alert({"run": run, "check": check}, value, {"passed": passed, **sides})


def _due(step: float | str, check: str = "replay", world: World = CLEAN, run: str = RUN) -> World:
    return world.ledger("check_due_step", step, check=check, run=run)


def _ahead_of_the_journal() -> World:
    """Let the journal stand at step 100 while the ranks go on: no progress reaches the ledger."""
    return _due(200).ledger("run_step", 100)


def older(rank: int, node: str = "node-c", run: str = RUN, **labels: str) -> World:
    """Return a rank of attempt 1 that is far ahead, and hangs."""
    ghost = rank_series(run, rank, node, 0, 1).all_of("lastgood_step", 9_000).all_of(f"lastgood_{_DEADLINE}", 0)
    return World(tuple(one.with_labels(**labels) for one in ghost))


_DEADLINE: Final = "step_deadline_timestamp_seconds"
_SECOND: Final = healthy(attempt=2)
_OLDER_ATTEMPTS: Final = {
    "a rank of an older attempt": _SECOND.plus(older(0)),
    "an older attempt while another run is in its first": _SECOND.plus(older(0)).plus(healthy("other", ("node-x",))),
    "an older attempt at the same address in another job": _SECOND.plus(older(0, instance="node-a:9470", job="old")),
    "an older attempt at the address of another run's rank": _SECOND.plus(
        healthy("other", ("node-x",), attempt=2)
    ).plus(older(0, instance="node-x:9470")),
    "an older attempt at the address of another rank": _SECOND.plus(older(0, instance="node-b:9471")),
}
"""Worlds in which the newest attempt is in health and an older one has not gone yet."""

_CHECKS_STALE: Final = [
    Case("ChecksStale", "fires when a check is past its due step for five minutes", _due(50), (stale(350),)),
    Case("ChecksStale", "is silent in health", CLEAN),
    Case("ChecksStale", "is silent at the boundary", _due(rising(100, 10))),
    Case("ChecksStale", "fires one step past the boundary", _due(rising(99, 10)), (stale(1),)),
    Case("ChecksStale", "waits five minutes", _due(105), at=300),
    Case("ChecksStale", "has waited five minutes", _due(105), (stale(105),), at=330),
    Case("ChecksStale", "is silent about a due step that is not a number", _due(NOT_A_NUMBER)),
    Case("ChecksStale", "is silent about a check that is off", _due(50).drop("check_due_step", check="replay")),
    Case(
        "ChecksStale",
        "says that a check has never passed",
        _due(50).ledger("run_check_last_pass_step", -1, check="replay"),
        (stale(350, passed="none in this attempt"),),
    ),
    Case(
        "ChecksStale",
        "names every stale check, with its own last pass",
        _due(50, "replica", _due(150)).ledger("run_check_last_pass_step", 60, check="replica"),
        (stale(250), stale(350, "replica", passed="60")),
    ),
    Case(
        "ChecksStale", "goes by the ranks when no progress reaches the ledger", _ahead_of_the_journal(), (stale(200),)
    ),
    Case("ChecksStale", "goes by the journal when no rank is scraped", _due(50).drop_all_ranks(), (stale(350),)),
    *(
        Case("ChecksStale", f"does not take the step of {what} for this one's", world)
        for what, world in _OLDER_ATTEMPTS.items()
    ),
    Case("ChecksStale", "goes by rank 0, whose step is everybody's", CLEAN.rank(3, "step", 9_000)),
    Case(
        "ChecksStale",
        "does not take the step of another run for this one's",
        _due(500)
        .plus(healthy("other").ledger("run_step", 9_000, run="other"))
        .ledger("check_due_step", 10_000, run="other", check="replay"),
        tuple(stale(9_000 - 600, check, run="other") for check in CHECKS[:3]),
    ),
    Case("ChecksStale", "is silent once the run has ended", ended(_due(50))),
    Case("ChecksStale", "is silent about a run that vanished", dead(_due(50))),
    Case("ChecksStale", "does not take another run's life for its own", dead(_due(50)).plus(healthy("other"))),
    Case(
        "ChecksStale",
        "keeps runs apart",
        _due(50).plus(
            _due(0, "replica", healthy("other"), "other")
            .ledger("run_check_last_pass_step", 33, run="other", check="replica")
            .ledger("last_good_step", 25, run="other")
        ),
        (
            stale(350),
            stale(400, "replica", "other", "33", last_good="Last good checkpoint to resume from: step 25."),
        ),
    ),
]


def _until(world: World, samples: int, *ranks: int, run: str = RUN) -> World:
    """Let ranks go silent after so many samples."""
    for rank in ranks:
        world = world.map_rank(rank, lambda text: _cut(text, samples), run)
    return world


def _cut(text: str, samples: int) -> str:
    start, _, count = text.rpartition("x")
    assert int(count) > samples
    return f"{start}x{samples - 1} stale"


def silent(value: float, one: str, nodes: str = "1", world: str = "4", run: str = RUN, **sides: str) -> Alert:
    return Alert({"run": run}, value, {"one": one, "nodes": nodes, "world": world, **sides})


_THREE: Final = "rank 3 on node node-b (GPU GPU-0003)"
_UNSEEN: Final = "not known: it was not scraped in the last hour"
_SILENT: Final = [
    Case("RankSilent", "fires when one rank of four is gone", _until(CLEAN, 10, 3), (silent(1, _THREE),)),
    Case("RankSilent", "is silent at the boundary, with every rank there", CLEAN),
    Case("RankSilent", "waits two minutes", _until(CLEAN, 10, 3), at=390),
    Case("RankSilent", "has waited two minutes", _until(CLEAN, 10, 3), (silent(1, _THREE),), at=420),
    Case(
        "RankSilent",
        "does not know a rank that was never scraped",
        CLEAN.drop_ranks(3),
        (silent(1, _UNSEEN, nodes="unknown"),),
    ),
    Case("RankSilent", "is silent when no rank is scraped at all", CLEAN.drop_all_ranks()),
    Case("RankSilent", "is silent once the run has ended", ended(_until(CLEAN, 10, 3))),
    Case(
        "RankSilent",
        "gives a new attempt five minutes",
        _until(CLEAN, 10, 3).ledger("run_attempt_start_timestamp_seconds", AT - 299),
    ),
    Case(
        "RankSilent",
        "has given a new attempt five minutes",
        _until(CLEAN, 10, 3).ledger("run_attempt_start_timestamp_seconds", AT - 420),
        (silent(1, _THREE),),
    ),
    Case(
        "RankSilent",
        "fires without a known start of the attempt",
        _until(CLEAN, 10, 3).drop("run_attempt_start_timestamp_seconds"),
        (silent(1, _THREE),),
    ),
    Case(
        "RankSilent",
        "does not count a rank of an older attempt as there",
        _until(healthy(attempt=2), 10, 3).plus(rank_series(RUN, 3, "node-c", 0, 1)),
        (silent(1, _THREE),),
    ),
    Case(
        "RankSilent",
        "does not count a rank of an older attempt as there while another run is in its first",
        _until(healthy(attempt=2), 10, 3).plus(rank_series(RUN, 3, "node-c", 0, 1)).plus(healthy("other", ("node-x",))),
        (silent(1, _THREE),),
    ),
    Case(
        "RankSilent",
        "does not take another run's activity for its own",
        ended(_until(CLEAN, 10, 3)).plus(healthy("other")),
    ),
    Case(
        "RankSilent",
        "does not wait for another run's attempt",
        _until(CLEAN, 10, 3).plus(healthy("other").ledger("run_attempt_start_timestamp_seconds", AT - 60, run="other")),
        (silent(1, _THREE),),
    ),
    Case(
        "RankSilent",
        "does not miss a rank that has moved to another node",
        _until(CLEAN, 10, 3).plus(rank_series(RUN, 3, "node-c", 0, 1)),
    ),
    Case(
        "RankSilent",
        "does not miss the ranks of a smaller older attempt",
        healthy(attempt=2).ledger("run_world_size", 4).plus(_until(rank_series(RUN, 4, "node-c", 0, 1), 10, 4)),
    ),
    Case(
        "RankSilent",
        "says how many ranks and nodes are gone, once per run",
        _until(_until(healthy(nodes=("node-a", "node-b", "node-c")), 10, 2, 4, 5), 9, 3),
        (silent(4, _THREE, nodes="2", world="6"),),
    ),
    Case(
        "RankSilent",
        "does not name the ranks of an older attempt",
        _until(healthy(attempt=2), 10, 3)
        .plus(_until(rank_series(RUN, 4, "node-c", 0, 1), 5, 4))
        .plus(healthy("other", ("node-x",))),
        (silent(1, _THREE),),
    ),
    Case(
        "RankSilent",
        "knows no rank that was last scraped more than an hour ago",
        _until(CLEAN, 10, 3),
        (silent(1, _UNSEEN, nodes="unknown"),),
        at=4200,
    ),
    Case(
        "RankSilent",
        "is silent about a world size that is not a number",
        _until(CLEAN, 10, 3).ledger("run_world_size", NOT_A_NUMBER),
    ),
    Case(
        "RankSilent",
        "keeps runs apart",
        _until(CLEAN, 10, 3).plus(healthy("other")),
        (silent(1, _THREE),),
    ),
    Case(
        "RankSilent",
        "keeps what it says of two runs apart",
        _until(CLEAN, 10, 3).plus(
            _until(healthy("other", ("node-x",)), 10, 1, run="other").ledger("last_good_step", -1, run="other")
        ),
        (
            silent(1, _THREE),
            silent(1, "rank 1 on node node-x (GPU GPU-0001)", world="2", run="other", last_good=NONE_GOOD),
        ),
    ),
]


def late(
    value: float, worst: str = _THREE, count: str = "1", run: str = RUN, step: str = STEP_THEN, **sides: str
) -> Alert:
    return Alert({"run": run}, value, {"worst": worst, "late": count, "step": step, "silent": "none", **sides})


_STALLED_RANK: Final = CLEAN.rank(3, _DEADLINE, 600)
_STALLED: Final = [
    Case("StepStalled", "fires when a deadline is missed", _STALLED_RANK, (late(300),)),
    Case("StepStalled", "is silent in health", CLEAN),
    Case("StepStalled", "is silent at the boundary", CLEAN.rank(3, _DEADLINE, NOW)),
    Case("StepStalled", "fires just past the boundary", CLEAN.rank(3, _DEADLINE, rising(-1, STEP_SECONDS)), (late(1),)),
    Case("StepStalled", "waits half a minute", CLEAN.rank(3, _DEADLINE, 899), at=900),
    Case("StepStalled", "has waited half a minute", CLEAN.rank(3, _DEADLINE, 899), (late(31, step="410"),), at=930),
    Case(
        "StepStalled",
        "is silent without a deadline: a first step, an evaluation",
        CLEAN.all_of(f"lastgood_{_DEADLINE}", "Inf+0x160"),
    ),
    Case("StepStalled", "is silent about a deadline that is not a number", CLEAN.rank(3, _DEADLINE, NOT_A_NUMBER)),
    Case("StepStalled", "is silent once the run has ended", ended(_STALLED_RANK)),
    Case("StepStalled", "is silent once the rank is gone", CLEAN.rank(3, _DEADLINE, "600+0x22 stale")),
    Case(
        "StepStalled",
        "goes on while a hung run writes no events",
        _STALLED_RANK.ledger("run_last_event_timestamp_seconds", AT - 1200),
        (late(300),),
    ),
    *(Case("StepStalled", f"does not mind {what} that hangs", world) for what, world in _OLDER_ATTEMPTS.items()),
    Case(
        "StepStalled",
        "counts the late ranks and names the latest",
        _STALLED_RANK.rank(0, _DEADLINE, 500),
        (late(400, "rank 0 on node node-a (GPU GPU-0000)", "2"),),
    ),
    Case(
        "StepStalled",
        "names the rank that fell silent first, which the others wait for",
        _until(_until(_STALLED_RANK, 10, 0), 12, 1),
        (late(300, silent="rank 0 on node node-a (GPU GPU-0000)"),),
    ),
    Case(
        "StepStalled",
        "names no silent rank of another run or of an older attempt",
        _until(healthy(attempt=2).rank(3, _DEADLINE, 600).plus(rank_series(RUN, 4, "node-c", 0, 1)), 5, 4).plus(
            _until(healthy("other", ("node-x",)), 10, 1, run="other")
        ),
        (late(300),),
    ),
    Case(
        "StepStalled",
        "keeps runs apart",
        _STALLED_RANK.plus(healthy("other")),
        (late(300),),
    ),
    Case(
        "StepStalled",
        "keeps what it says of two runs apart",
        _STALLED_RANK.plus(healthy("other").rank(1, _DEADLINE, 700, run="other").ledger("run_step", 9, run="other")),
        (late(300), late(200, "rank 1 on node node-a (GPU GPU-0001)", run="other", step="9")),
    ),
    Case(
        "StepStalled", "does not take another run's activity for its own", ended(_STALLED_RANK).plus(healthy("other"))
    ),
]


def _last_event(minutes: float, world: World = CLEAN, run: str = RUN) -> World:
    return world.drop_all_ranks(run).ledger("run_last_event_timestamp_seconds", AT - 60 * minutes, run=run)


_VANISHED: Final = [
    Case(
        "RunVanished", "fires for a run that went silent 20 minutes ago", _last_event(20), (of_run(20, step=STEP_THEN),)
    ),
    Case("RunVanished", "is silent in health", CLEAN),
    Case("RunVanished", "is silent at the boundary", _last_event(10)),
    Case("RunVanished", "fires past the boundary", _last_event(11), (of_run(11, step=STEP_THEN),)),
    Case(
        "RunVanished",
        "fires when only ranks of an older attempt are left",
        CLEAN.ledger("run_last_event_timestamp_seconds", AT - 1200).ledger("run_attempt", 2),
        (of_run(20, step=STEP_THEN),),
    ),
    Case(
        "RunVanished",
        "does not take another run's attempt for its own",
        CLEAN.ledger("run_last_event_timestamp_seconds", AT - 1200).ledger("run_attempt", 2).plus(healthy("other")),
        (of_run(20, step=STEP_THEN),),
    ),
    Case("RunVanished", "stops after a day", _last_event(24 * 60)),
    Case("RunVanished", "goes on for a day", _last_event(24 * 60 - 1), (of_run(24 * 60 - 1, step=STEP_THEN),)),
    Case("RunVanished", "is silent once the run has ended", ended(_last_event(20))),
    Case(
        "RunVanished", "is silent while a rank is scraped", CLEAN.ledger("run_last_event_timestamp_seconds", AT - 1200)
    ),
    Case(
        "RunVanished",
        "does not judge by a ledger that does not read",
        _last_event(20).ledger("ledger_last_read_timestamp_seconds", AT - 300),
    ),
    Case(
        "RunVanished",
        "judges by a ledger that reads slowly",
        _last_event(20).ledger("ledger_last_read_timestamp_seconds", AT - 299),
        (of_run(20, step=STEP_THEN),),
    ),
    Case(
        "RunVanished",
        "is silent about a time that is not a number",
        CLEAN.drop_all_ranks().ledger("run_last_event_timestamp_seconds", NOT_A_NUMBER),
    ),
    Case(
        "RunVanished",
        "fires while another run goes on",
        _last_event(20).plus(healthy("other")),
        (of_run(20, step=STEP_THEN),),
    ),
    Case(
        "RunVanished", "does not take another run's activity for its own", ended(_last_event(20)).plus(healthy("other"))
    ),
    Case(
        "RunVanished",
        "does not take another run's reading for its own",
        _last_event(20).ledger("ledger_last_read_timestamp_seconds", 0).plus(healthy("other")),
    ),
    Case(
        "RunVanished",
        "keeps what it says of two runs apart",
        _last_event(20).plus(_last_event(30, healthy("other"), "other").ledger("run_step", 9, run="other")),
        (of_run(20, step=STEP_THEN), of_run(30, "other", step="9")),
    ),
]


def _restarts(count: float | str, world: World = CLEAN, run: str = RUN) -> World:
    return world.ledger("restarts_recent", count, window="1h", run=run)


_STORM: Final = [
    Case(
        "RestartStorm",
        "fires at the boundary, for three restarts",
        _restarts(3),
        (of_run(3, step=STEP_THEN, attempt="1"),),
    ),
    Case("RestartStorm", "fires for more", _restarts(7), (of_run(7, step=STEP_THEN, attempt="1"),)),
    Case("RestartStorm", "is silent in health", CLEAN),
    Case("RestartStorm", "is silent about two", _restarts(2)),
    Case("RestartStorm", "looks at an hour, not at a day", CLEAN.ledger("restarts_recent", 7, window="24h")),
    Case("RestartStorm", "is silent about a value that is not a number", _restarts(NOT_A_NUMBER)),
    Case(
        "RestartStorm",
        "keeps runs apart",
        _restarts(3).plus(_restarts(4, healthy("other", attempt=5), "other").ledger("run_step", 9, run="other")),
        (of_run(3, step=STEP_THEN, attempt="1"), of_run(4, "other", step="9", attempt="5")),
    ),
]


def _goodput(ratio: float | str, world: World = CLEAN, run: str = RUN) -> World:
    return world.ledger("goodput_ratio", ratio, window="1h", run=run)


_GOODPUT: Final = [
    Case("GoodputLow", "fires below 90 percent", _goodput(0.5), (of_run(50, whole="95.0"),)),
    Case("GoodputLow", "is silent in health", CLEAN),
    Case("GoodputLow", "is silent at the boundary", _goodput(0.9)),
    Case("GoodputLow", "fires just below the boundary", _goodput(0.89), (of_run(89, whole="95.0"),)),
    Case("GoodputLow", "looks at the hour, not at the run", CLEAN.ledger("goodput_ratio", 0.5, window="run")),
    Case("GoodputLow", "waits ten minutes", _goodput("0.97+0x9 0.5+0x60"), at=870),
    Case("GoodputLow", "has waited ten minutes", _goodput("0.97+0x9 0.5+0x60"), (of_run(50, whole="95.0"),), at=900),
    Case("GoodputLow", "is silent in the first hour", _goodput(0.5).ledger("run_start_timestamp_seconds", AT - 3599)),
    Case(
        "GoodputLow",
        "judges after the first hour",
        _goodput(0.5).ledger("run_start_timestamp_seconds", AT - 4200),
        (of_run(50, whole="95.0"),),
    ),
    Case(
        "GoodputLow",
        "judges a run whose start is not known",
        _goodput(0.5).drop("run_start_timestamp_seconds"),
        (of_run(50, whole="95.0"),),
    ),
    Case("GoodputLow", "is silent about a value that is not a number", _goodput(NOT_A_NUMBER)),
    Case("GoodputLow", "is silent once the run has ended", ended(_goodput(0.5))),
    Case(
        "GoodputLow",
        "is silent about a run that vanished",
        dead(_goodput(0.5)).ledger("run_last_event_timestamp_seconds", -1200),
    ),
    Case(
        "GoodputLow",
        "keeps runs apart",
        _goodput(0.5).plus(
            _goodput(0.25, healthy("other"), "other").ledger("goodput_ratio", 0.4, run="other", window="run")
        ),
        (of_run(50, whole="95.0"), of_run(25, "other", whole="40.0")),
    ),
    Case(
        "GoodputLow",
        "does not take another run's life or age for its own",
        dead(_goodput(0.5)).ledger("run_last_event_timestamp_seconds", -1200).plus(healthy("other")),
    ),
    Case(
        "GoodputLow",
        "judges an old run beside a young one",
        _goodput(0.5).plus(healthy("other").ledger("run_start_timestamp_seconds", AT - 60, run="other")),
        (of_run(50, whole="95.0"),),
    ),
]

CASES: Final = [*_CHECKS_STALE, *_SILENT, *_STALLED, *_VANISHED, *_STORM, *_GOODPUT]
