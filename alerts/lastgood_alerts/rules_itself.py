"""Rules about lastgood itself: an alarm system that is silent because it is broken is worse than none."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lastgood_alerts import thresholds as t
from lastgood_alerts.queries import SCRAPED, added, with_gpu
from lastgood_alerts.recordings import EXPORTER_FAILURES, WORST_FAILURES
from lastgood_alerts.rule import Rule, Side
from lastgood_alerts.sides import LAST_GOOD

_FAILURES: Final = EXPORTER_FAILURES.name

EXPORTER_ERRORS: Final = Rule(
    name="ExporterErrors",
    unit="failures within 15 minutes",
    severity="warning",
    condition=f"sum by (run, part) ({_FAILURES})",
    operator=">=",
    threshold=t.EXPORTER_ERRORS,
    labels=("run", "part"),
    meaning="A part of lastgood failed inside training processes; training went on.",
    summary="lastgood's own failures in run {run}, part {part}: {value}. {last_good}",
    description=(
        "The part {part} of lastgood failed {value} times within 15 minutes in run {run}, on {failing} rank(s); most "
        "often on {worst}. Training goes on, but what this part looks for may be missing. {last_good}"
    ),
    link="run",
    sides=(
        LAST_GOOD,
        Side(name="failing", query=f"count by (run, part) ({_FAILURES})", by=("run", "part")),
        Side(
            name="worst",
            query=with_gpu(WORST_FAILURES.name),
            by=("run", "part"),
            text="rank {rank} on node {node} (GPU {gpu_uuid})",
        ),
    ),
    change="`EXPORTER_ERRORS`: higher when the console is often out of reach (part `delivery`).",
)

JOURNAL_UNREADABLE: Final = Rule(
    name="JournalUnreadable",
    unit="places within the hour",
    severity="warning",
    condition=f"max by (run) {added('lastgood_journal_unreadable_lines_total', '1h')}",
    operator=">=",
    threshold=t.UNREADABLE_LINES,
    labels=("run",),
    meaning="Places in a run directory could not be read, so findings may be missing from its incidents.",
    summary="Unreadable places in the run directory of {run}: {value}. {last_good}",
    description=(
        "Places in the run directory of {run} that the ledger could not read, new within the hour: {value}. "
        "What stood there is missing from incidents and from checkpoint trust. {last_good}"
    ),
    link="run",
    sides=(LAST_GOOD,),
    change="Leave it.",
)

_SEEN_AT: Final = "max by (run) (last_over_time(lastgood_ledger_last_read_timestamp_seconds[1d]))"
_READ_AT: Final = f"({_SEEN_AT} or {SCRAPED} * 0 + time() - {t.LEDGER_UNKNOWN_SECONDS})"

_LATELY_ACTIVE: Final = "(max by (run) (last_over_time(lastgood_run_active[1h])) == 1)"
"""Where the ranks are not scraped, a ledger that goes away takes all that is known of its runs with it."""

_LAST_GOOD_SEEN: Final = replace(
    LAST_GOOD,
    query="max by (run) (last_over_time(lastgood_last_good_step[1d]))",
    text="Last good checkpoint to resume from, when a ledger was last seen: step {value}.",
    none="When a ledger was last seen, there was no good checkpoint to resume from.",
)

_LAST_READ: Final = Side(
    name="read",
    query=f"time() - {_SEEN_AT}",
    text="a ledger last read them {value} s ago",
    none="a ledger last read them just now",
    unknown="no ledger was seen within a day",
)

LEDGER_STALE: Final = Rule(
    name="LedgerStale",
    unit=f"seconds since the last reading ({t.LEDGER_UNKNOWN_SECONDS}: none was seen within a day)",
    severity="critical",
    condition=f"(time() - {_READ_AT}) and on (run) ({SCRAPED} or {_LATELY_ACTIVE})",
    operator=">",
    threshold=t.LEDGER_STALE_SECONDS,
    labels=("run",),
    for_seconds=t.LEDGER_STALE_FOR_SECONDS,
    meaning="The ledger has stopped reading, or is not scraped: no finding of this run would be seen. Where no rank is "
    "scraped either, it ends an hour after the ledger went away.",
    summary="Nobody reads the journals of run {run}: {read}. {last_good}",
    description=(
        "No ledger reads the journals of run {run}, or none that does is scraped, while the run trains: {read}. Alerts "
        "about findings, checkpoints and stale checks are blind until one reads them again. {last_good}"
    ),
    link="run",
    sides=(_LAST_GOOD_SEEN, _LAST_READ),
    change="`LEDGER_STALE_SECONDS`: higher when reading slow shared storage takes longer.",
)

WATCHDOG: Final = Rule(
    name="Watchdog",
    unit="(always 1)",
    severity="info",
    condition="vector(1)",
    operator=">",
    threshold=0,
    labels=(),
    meaning="Always firing: route it to something that raises the alarm when it stops.",
    summary="The way from Prometheus to whoever is notified works.",
    description=(
        "This alert always fires. When it stops arriving, rules are not evaluated or notifications do not get through, "
        "and no other alert of lastgood would arrive either."
    ),
    link="alerts",
    change="Leave it.",
)

OWN_RULES: Final = (EXPORTER_ERRORS, JOURNAL_UNREADABLE, LEDGER_STALE, WATCHDOG)
