"""Cases of the rules about lastgood itself."""

from __future__ import annotations

from typing import Final

from tests.alerts.cases_checkpoints import CLEAN, NONE_GOOD, ended, of_run
from tests.alerts.promtool_cases import Alert, Case
from tests.alerts.world import NOT_A_NUMBER, RUN, Values, World, healthy

AT: Final = 900
THREE: Final = "rank 3 on node node-b (GPU GPU-0003)"
_ERRORS: Final = "exporter_errors_total"


def failed(
    value: float, part: str = "device", worst: str = THREE, failing: str = "1", run: str = RUN, **sides: str
) -> Alert:
    return Alert({"run": run, "part": part}, value, {"worst": worst, "failing": failing, **sides})


def _failures(value: Values, world: World = CLEAN, rank: int = 3, part: str = "device", run: str = RUN) -> World:
    return world.rank(rank, _ERRORS, value, run=run, part=part)


_EXPORTER: Final = [
    Case("ExporterErrors", "fires at the boundary, for one failure", _failures("0+0x9 1+0x150"), (failed(1),)),
    Case("ExporterErrors", "is silent in health", CLEAN),
    Case("ExporterErrors", "fires when the first sample is already 1", _failures(1), (failed(1),), at=870),
    Case("ExporterErrors", "ends after a quarter of an hour", _failures("0+0x9 1+0x150"), at=1230),
    Case(
        "ExporterErrors", "still fires within the quarter of an hour", _failures("0+0x9 1+0x150"), (failed(1),), at=1140
    ),
    Case(
        "ExporterErrors",
        "counts what was added, not what was there",
        _failures("5+0x40 7+0x100"),
        (failed(2),),
        at=1500,
    ),
    Case(
        "ExporterErrors",
        "does not take one scrape that failed a quarter of an hour ago for new failures",
        _failures("5+0x49 stale 5+0x100"),
        at=2415,
    ),
    Case("ExporterErrors", "does not take a reset for a failure", _failures("5+0x40 0+0x100"), at=1500),
    Case("ExporterErrors", "counts failures after a reset", _failures("5+0x40 2+0x100"), (failed(2),), at=1500),
    Case("ExporterErrors", "is silent about a count that is not a number", _failures(NOT_A_NUMBER)),
    Case("ExporterErrors", "is silent without the series", CLEAN.drop(_ERRORS)),
    Case(
        "ExporterErrors",
        "adds the ranks up, and names the worst",
        _failures(2, _failures(5), rank=0),
        (failed(7, failing="2"),),
        at=870,
    ),
    Case(
        "ExporterErrors",
        "does not count a rank that failed before",
        _failures(5, _failures("0+0x40 2+0x100"), rank=0),
        (failed(2, worst="rank 3 on node node-b (GPU GPU-0003)"),),
        at=1500,
    ),
    Case(
        "ExporterErrors",
        "keeps the parts apart",
        _failures(2, _failures(5), rank=0, part="journal"),
        (failed(5), failed(2, "journal", "rank 0 on node node-a (GPU GPU-0000)")),
        at=870,
    ),
    Case(
        "ExporterErrors",
        "keeps runs apart",
        _failures(5).plus(_failures(2, healthy("other"), 0, run="other").ledger("last_good_step", -1, run="other")),
        (failed(5), failed(2, worst="rank 0 on node node-a (GPU GPU-0000)", run="other", last_good=NONE_GOOD)),
        at=870,
    ),
    Case(
        "ExporterErrors",
        "names nobody when the rank's place is not known",
        _failures(5).drop("rank_info", rank="3"),
        (failed(5, worst="unknown"),),
        at=870,
    ),
    Case(
        "ExporterErrors",
        "counts failures after a reset to one less",
        _failures("5+0x40 4+0x100"),
        (failed(4),),
        at=1500,
    ),
]

_LINES: Final = "journal_unreadable_lines_total"
_UNREADABLE: Final = [
    Case(
        "JournalUnreadable", "fires at the boundary, for one place", CLEAN.ledger(_LINES, "0+0x9 1+0x150"), (of_run(1),)
    ),
    Case("JournalUnreadable", "is silent in health", CLEAN),
    Case("JournalUnreadable", "fires when the first sample is already 3", CLEAN.ledger(_LINES, 3), (of_run(3),)),
    Case("JournalUnreadable", "ends after an hour", CLEAN.ledger(_LINES, "0+0x9 1+0x150"), at=4320),
    Case(
        "JournalUnreadable", "still fires within the hour", CLEAN.ledger(_LINES, "0+0x9 1+0x150"), (of_run(1),), at=3840
    ),
    Case(
        "JournalUnreadable",
        "counts what was added, not what was there",
        CLEAN.ledger(_LINES, "5+0x125 7+0x30"),
        (of_run(2),),
        at=3900,
    ),
    Case(
        "JournalUnreadable",
        "does not take one scrape that failed an hour ago for new places",
        CLEAN.ledger(_LINES, "2+0x19 stale 2+0x139"),
        at=4215,
    ),
    Case("JournalUnreadable", "does not take a reset for more", CLEAN.ledger(_LINES, "5+0x125 0+0x30"), at=4320),
    Case("JournalUnreadable", "is silent about a count that is not a number", CLEAN.ledger(_LINES, NOT_A_NUMBER)),
    Case("JournalUnreadable", "tells of a run that has ended", ended(CLEAN.ledger(_LINES, 3)), (of_run(3),)),
    Case(
        "JournalUnreadable",
        "keeps runs apart",
        CLEAN.ledger(_LINES, 3).plus(
            healthy("other").ledger(_LINES, 4, run="other").ledger("last_good_step", -1, run="other")
        ),
        (of_run(3), of_run(4, "other", last_good=NONE_GOOD)),
    ),
    Case(
        "JournalUnreadable",
        "counts places after a reset to one less",
        CLEAN.ledger(_LINES, "5+0x125 4+0x30"),
        (of_run(4),),
        at=3900,
    ),
]

UNSEEN: Final = "no ledger was seen within a day"
SEEN: Final = "Last good checkpoint to resume from, when a ledger was last seen: step 50."
_READ: Final = "ledger_last_read_timestamp_seconds"


def _read_until(samples: int, world: World = CLEAN) -> World:
    """Let the ledger die after so many samples: every series of it ends."""
    lines = []
    for one in world.drop_all_ranks():
        values = one.values.rpartition("x")[0] + f"x{samples - 1} stale"
        lines.append(type(one)(one.name, one.labels, values))
    return World((*lines, *(one for one in world if one.labels["job"] == "lastgood-ranks")))


def unread(seconds: float, run: str = RUN, last_good: str = SEEN, read: str = "") -> Alert:
    return of_run(seconds, run, last_good=last_good, read=read or f"a ledger last read them {seconds:.0f} s ago")


_STALE: Final = [
    Case(
        "LedgerStale",
        "fires when the ledger has not read for ten minutes",
        CLEAN.ledger(_READ, 300),
        (unread(600),),
    ),
    Case("LedgerStale", "is silent in health", CLEAN),
    Case("LedgerStale", "is silent at the boundary", CLEAN.ledger(_READ, "-120+30x160")),
    Case("LedgerStale", "fires above the boundary", CLEAN.ledger(_READ, "-121+30x160"), (unread(121),)),
    Case("LedgerStale", "waits two minutes", CLEAN.ledger(_READ, "0+30x20 600+0x100"), at=840),
    Case(
        "LedgerStale",
        "has waited two minutes",
        CLEAN.ledger(_READ, "0+30x20 600+0x100"),
        (unread(270),),
        at=870,
    ),
    Case(
        "LedgerStale",
        "fires when the ledger is gone and the ranks go on",
        _read_until(10),
        (unread(900 - 270),),
    ),
    Case(
        "LedgerStale",
        "fires when no ledger was ever seen",
        CLEAN.drop_ledger(),
        (unread(86_400, last_good="Which checkpoint to resume from is not known.", read=UNSEEN),),
    ),
    Case(
        "LedgerStale",
        "fires for an active run that is not scraped",
        CLEAN.drop_all_ranks().ledger(_READ, 300),
        (unread(600),),
    ),
    Case("LedgerStale", "is silent about a run that has ended", ended(CLEAN.drop_all_ranks()).ledger(_READ, 300)),
    Case(
        "LedgerStale",
        "fires when the ledger went away and no rank is scraped",
        _read_until(10).drop_all_ranks(),
        (unread(900 - 270),),
    ),
    Case("LedgerStale", "ends an hour after all of a run went away", _read_until(10).drop_all_ranks(), at=3900),
    Case("LedgerStale", "is silent about an ended run whose ledger went away", ended(_read_until(10).drop_all_ranks())),
    Case("LedgerStale", "is silent about a time that is not a number", CLEAN.ledger(_READ, NOT_A_NUMBER)),
    Case(
        "LedgerStale",
        "keeps runs apart",
        CLEAN.ledger(_READ, 300).plus(healthy("other")),
        (unread(600),),
    ),
    Case(
        "LedgerStale",
        "keeps what it says of two runs apart",
        CLEAN.ledger(_READ, 300).plus(
            healthy("other").ledger(_READ, 600, run="other").ledger("last_good_step", -1, run="other")
        ),
        (
            unread(600),
            unread(300, "other", last_good="When a ledger was last seen, there was no good checkpoint to resume from."),
        ),
    ),
    Case(
        "LedgerStale",
        "does not take another run's life for its own",
        ended(CLEAN.drop_all_ranks()).ledger(_READ, 300).plus(healthy("other")),
    ),
]

_ALWAYS: Final = [
    Case("Watchdog", "fires in health", CLEAN, (Alert({}, 1),)),
    Case("Watchdog", "fires with nothing there", World().add("up", 1, job="prometheus"), (Alert({}, 1),)),
]

CASES: Final = [*_EXPORTER, *_UNREADABLE, *_STALE, *_ALWAYS]
