"""Cases of the rules about the checkpoints of a run."""

from __future__ import annotations

from typing import Final

from tests.alerts.promtool_cases import Alert, Case
from tests.alerts.world import NOT_A_NUMBER, RUN, World, healthy, rising

CLEAN: Final = healthy()
NONE_GOOD: Final = "There is no good checkpoint to resume from yet."
AT: Final = 900
STEP_THEN: Final = "400"  # of the healthy run, 900 s after it began


def of_run(value: float, run: str = RUN, **sides: str) -> Alert:
    return Alert({"run": run}, value, sides)


def dead(world: World, run: str = RUN) -> World:
    """Let a run die without a word, 20 minutes ago."""
    return world.drop_all_ranks(run).ledger("run_last_event_timestamp_seconds", AT - 1200, run=run)


def ended(world: World) -> World:
    return world.ledger("run_active", 0)


def _trusted(hours: float, world: World = CLEAN, run: str = RUN) -> World:
    return world.ledger("checkpoint_last_trusted_timestamp_seconds", AT - hours * 3600, run=run)


def _unscraped(seconds: float) -> World:
    """Return a run at risk that is not scraped, whose newest event is so old."""
    return _trusted(7).drop_all_ranks().ledger("run_last_event_timestamp_seconds", AT - seconds)


_HOURS: Final = "checkpoint_last_trusted_timestamp_seconds"
_NO_TRUSTED: Final = [
    Case("NoTrustedCheckpoint", "fires after more than six hours", _trusted(7), (of_run(7, steps="350"),)),
    Case("NoTrustedCheckpoint", "is silent in health", CLEAN),
    Case("NoTrustedCheckpoint", "is silent at the boundary", _trusted(6)),
    Case("NoTrustedCheckpoint", "fires just above the boundary", _trusted(6.1), (of_run(6.1, steps="350"),)),
    Case("NoTrustedCheckpoint", "is silent about a value that is not a number", CLEAN.ledger(_HOURS, NOT_A_NUMBER)),
    Case(
        "NoTrustedCheckpoint",
        "counts from the start of a run that never had one",
        CLEAN.drop(_HOURS)
        .ledger("checkpoint_last_trusted_step", -1)
        .ledger("run_start_timestamp_seconds", AT - 8 * 3600)
        .ledger("last_good_step", -1),
        (of_run(8, steps=STEP_THEN, last_good=NONE_GOOD),),
    ),
    Case("NoTrustedCheckpoint", "gives a run that never had one six hours", CLEAN.drop(_HOURS)),
    Case("NoTrustedCheckpoint", "is silent once the run has ended", ended(_trusted(7))),
    Case("NoTrustedCheckpoint", "is silent about a run that vanished", dead(_trusted(7))),
    Case("NoTrustedCheckpoint", "takes a run for silent after ten minutes", _unscraped(600)),
    Case(
        "NoTrustedCheckpoint",
        "does not take a run for silent within ten minutes",
        _unscraped(599),
        (of_run(7, steps="350"),),
    ),
    Case(
        "NoTrustedCheckpoint",
        "goes on while a run that writes no events is scraped",
        _trusted(7).ledger("run_last_event_timestamp_seconds", AT - 1200),
        (of_run(7, steps="350"),),
    ),
    Case(
        "NoTrustedCheckpoint",
        "goes on while a run that is not scraped writes events",
        _trusted(7).drop_all_ranks(),
        (of_run(7, steps="350"),),
    ),
    Case(
        "NoTrustedCheckpoint",
        "keeps runs apart",
        _trusted(7).plus(
            _trusted(9, healthy("other"), "other")
            .ledger("checkpoint_last_trusted_step", 100, run="other")
            .ledger("last_good_step", 75, run="other")
        ),
        (
            of_run(7, steps="350"),
            of_run(9, "other", steps="300", last_good="Last good checkpoint to resume from: step 75."),
        ),
    ),
    Case(
        "NoTrustedCheckpoint",
        "does not take another run's life for its own",
        dead(_trusted(7)).plus(healthy("other")),
    ),
    Case(
        "NoTrustedCheckpoint",
        "says that the steps are unknown",
        _trusted(7).drop("run_step"),
        (of_run(7, steps="unknown"),),
    ),
]


def _saved(seconds: float, world: World = CLEAN, run: str = RUN) -> World:
    """Return a run whose newest save is so old, with the usual interval of 600 s."""
    return world.ledger("checkpoint_last_timestamp_seconds", AT - seconds, run=run)


_OVERDUE: Final = [
    Case("CheckpointOverdue", "fires after more than three intervals", _saved(2400), (of_run(4, step=STEP_THEN),)),
    Case("CheckpointOverdue", "is silent in health", CLEAN),
    Case("CheckpointOverdue", "is silent at the boundary", _saved(1800)),
    Case("CheckpointOverdue", "fires just above the boundary", _saved(1860), (of_run(3.1, step=STEP_THEN),)),
    Case(
        "CheckpointOverdue",
        "is silent about a time that is not a number",
        CLEAN.ledger("checkpoint_last_timestamp_seconds", NOT_A_NUMBER),
    ),
    Case(
        "CheckpointOverdue",
        "is silent before the second save",
        _saved(7200).drop("checkpoint_interval_seconds"),
    ),
    Case(
        "CheckpointOverdue",
        "takes a very short interval for a minute",
        _saved(180).ledger("checkpoint_interval_seconds", 1),
    ),
    Case(
        "CheckpointOverdue",
        "fires when even a minute is exceeded three times",
        _saved(240).ledger("checkpoint_interval_seconds", 1),
        (of_run(4, step=STEP_THEN),),
    ),
    Case("CheckpointOverdue", "is silent once the run has ended", ended(_saved(2400))),
    Case("CheckpointOverdue", "is silent about a run that vanished", dead(_saved(2400))),
    Case(
        "CheckpointOverdue",
        "keeps runs apart",
        _saved(2400).plus(
            _saved(4800, healthy("other"), "other")
            .ledger("checkpoint_interval_seconds", 1200, run="other")
            .ledger("run_step", 777, run="other")
        ),
        (of_run(4, step=STEP_THEN), of_run(4, "other", step="777")),
    ),
    Case(
        "CheckpointOverdue", "does not take another run's life for its own", dead(_saved(2400)).plus(healthy("other"))
    ),
]

_FAILING: Final = [
    Case(
        "CheckpointSaveFailing",
        "fires at the boundary, after two failures in a row",
        CLEAN.ledger("checkpoint_failed_saves", 2),
        (of_run(2, step=STEP_THEN),),
    ),
    Case(
        "CheckpointSaveFailing",
        "fires for more",
        CLEAN.ledger("checkpoint_failed_saves", 5),
        (of_run(5, step=STEP_THEN),),
    ),
    Case("CheckpointSaveFailing", "is silent in health", CLEAN),
    Case("CheckpointSaveFailing", "is silent after one failure", CLEAN.ledger("checkpoint_failed_saves", 1)),
    Case(
        "CheckpointSaveFailing",
        "is silent about a value that is not a number",
        CLEAN.ledger("checkpoint_failed_saves", NOT_A_NUMBER),
    ),
    Case(
        "CheckpointSaveFailing",
        "ends with a save that succeeds",
        CLEAN.ledger("checkpoint_failed_saves", "3+0x20 0+0x40"),
    ),
    Case(
        "CheckpointSaveFailing", "is silent once the run has ended", ended(CLEAN.ledger("checkpoint_failed_saves", 2))
    ),
    Case(
        "CheckpointSaveFailing", "is silent about a run that vanished", dead(CLEAN.ledger("checkpoint_failed_saves", 2))
    ),
    Case(
        "CheckpointSaveFailing",
        "keeps runs apart",
        CLEAN.ledger("checkpoint_failed_saves", 2).plus(
            healthy("other")
            .ledger("checkpoint_failed_saves", 4, run="other")
            .ledger("run_step", rising(0, 1), run="other")
        ),
        (of_run(2, step=STEP_THEN), of_run(4, "other", step="30")),
    ),
    Case(
        "CheckpointSaveFailing",
        "does not take another run's life for its own",
        dead(CLEAN.ledger("checkpoint_failed_saves", 2)).plus(healthy("other")),
    ),
]

CASES: Final = [*_NO_TRUSTED, *_OVERDUE, *_FAILING]
