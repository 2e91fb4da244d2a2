"""Show all runs: which one needs somebody."""

from __future__ import annotations

from typing import Final

from lastgood_dashboards.incidents import open_count, open_incidents
from lastgood_dashboards.links import UIDS, node_links, run_links
from lastgood_dashboards.queries import accusations, latest, ledger, overdue, run_variable, total
from lastgood_dashboards.spec import (
    BAD,
    GOOD,
    LATE,
    NONE_AT_MINUS_ONE,
    PEER,
    PLAIN,
    Board,
    Link,
    Panel,
    Query,
    Row,
)  # fmt: skip
from lastgood_dashboards.trust import by_trust

RUNS: Final = 'run=~"$run"'
_HOUR, _DAY = 'window="1h"', 'window="24h"'
NO_RUN: Final = "No ledger reports a run"

NOW: Final = Row(
    id=100, title="Now",
    panels=(
        Panel(
            id=1, kind="stat", title="Open incidents", width=5, height=4, empty=NO_RUN,
            says="Incidents that are open or reopened, over all selected runs.",
            queries=(Query(expr=open_count(RUNS), legend="open"),),
            steps=((None, PLAIN), (1, BAD)),
        ),
        Panel(
            id=2, kind="stat", title="Checks overdue", width=5, height=4, empty="No active run with checks",
            says="Checks of active runs that should have passed again by now. Silence is not health.",
            queries=(Query(expr=f"sum ({overdue(RUNS)})", legend="overdue"),),
            steps=((None, PLAIN), (1, LATE)),
        ),
        Panel(
            id=3, kind="stat", title="Checkpoints not to use", width=5, height=4, empty=NO_RUN,
            says="Checkpoints that are suspect (covered by an open window) or tainted (their own bytes or save checks "
                 "failed).",
            queries=(
                Query(expr=total("checkpoints", RUNS, 'trust=~"suspect|tainted"', by="run, trust"),
                      legend="not to use"),
            ),
            steps=((None, PLAIN), (1, LATE)),
        ),
        Panel(
            id=4, kind="stat", title="Restarts in 24 h", width=5, height=4, empty=NO_RUN,
            says="Restarts of the selected runs within the last 24 hours.",
            queries=(Query(expr=total("restarts_recent", RUNS, _DAY), legend="restarts"),),
            steps=((None, PLAIN), (3, LATE)),
        ),
        Panel(
            id=5, kind="stat", title="Age of what is shown", width=4, height=4, empty=NO_RUN, unit="s", decimals=0,
            says="Seconds since the ledger last read the journals, of the run that was read the longest ago within the "
                 "last hour. Above a minute what is shown here is old, and soon it is gone.",
            queries=(
                Query(expr=f"time() - min ({latest('ledger_last_read_timestamp_seconds', RUNS, by='run', over='1h')})",
                      legend="age"),
            ),
            steps=((None, PLAIN), (60, LATE)),
        ),
    ),
)  # fmt: skip

TABLES: Final = Row(
    id=110, title="What needs somebody",
    panels=(
        open_incidents(6, RUNS, one_run=False),
        Panel(
            id=7, kind="table", title="Runs", width=24, height=9, empty=NO_RUN, labels=("run",),
            highest_first="open incidents",
            says="Every run a ledger knows. Last good is the step of the checkpoint to resume from.",
            queries=(
                Query(expr=ledger("run_active", RUNS), legend="state",
                      texts={"1": ("training", GOOD), "0": ("ended", PLAIN)}),
                Query(expr=ledger("run_attempt", RUNS), legend="attempt"),
                Query(expr=ledger("run_step", RUNS), legend="step"),
                Query(expr=ledger("last_good_step", RUNS), legend="last good", texts=NONE_AT_MINUS_ONE),
                Query(expr=open_count(RUNS, per="run"), legend="open incidents",
                      steps=((None, PLAIN), (1, BAD))),
                Query(expr=f"sum by (run) ({overdue(RUNS)})", legend="checks overdue",
                      steps=((None, PLAIN), (1, LATE))),
                Query(expr=ledger("restarts_recent", RUNS, _DAY), legend="restarts in 24 h"),
                Query(expr=ledger("goodput_ratio", RUNS, _HOUR), legend="goodput, 1 h", unit="percentunit"),
                Query(expr=f"time() - {ledger('run_last_event_timestamp_seconds', RUNS)}", legend="last heard",
                      unit="s"),
            ),
            links={"run": run_links()},
        ),
    ),
)  # fmt: skip

TRENDS: Final = Row(
    id=120, title="Over time",
    panels=(
        Panel(
            id=8, kind="lines", title="Checkpoints by trust", width=6, empty=NO_RUN, low=0,
            says="How far the checkpoints of the selected runs can be trusted.",
            queries=by_trust(RUNS),
        ),
        Panel(
            id=9, kind="lines", title="Runs with an overdue check", width=6, empty="No active run with checks", low=0,
            says="Active runs in which a check should have passed again by now, by check.",
            queries=(Query(expr=f"sum by (check) ({overdue(RUNS)})", legend="{{check}}"),),
        ),
        Panel(
            id=10, kind="lines", title="Restarts by reason", width=6, empty=NO_RUN, low=0,
            says="Restarts so far, by how the attempt before ended. Lost: it died without a word.",
            queries=(
                Query(expr=total("restarts_total", RUNS, by="run, reason", per="reason"), legend="{{reason}}"),
            ),
        ),
        Panel(
            id=11, kind="lines", title="Goodput, the five lowest runs", width=6, empty=NO_RUN, unit="percentunit",
            low=0, high=1,
            says="Share of the last hour that went into steps that were kept: the five runs that are lowest at the end "
                 "of the time range.",
            queries=(
                Query(
                    expr=f"{ledger('goodput_ratio', RUNS, _HOUR)} and "
                         f"bottomk(5, {latest('goodput_ratio', RUNS, _HOUR, by='run')})",
                    legend="{{run}}",
                ),
            ),
            links={"": run_links("${__field.labels.run}")},
        ),
    ),
)  # fmt: skip

_MOST_ACCUSED: Final = f"topk(20, {accusations('90d')})"

LEDGER: Final = Row(
    id=130, title="Devices and ledger",
    panels=(
        Panel(
            id=12, kind="table", title="Devices accused most", width=12, empty="No device accused within 90 days",
            says="Incidents that named a device, over all runs and restarts. The identity is node and GPU, never the "
                 "rank. A device that is accused twice comes back a third time.",
            labels=("node", "gpu_uuid"), highest_first="within 90 days",
            queries=(
                Query(expr=_MOST_ACCUSED, legend="within 90 days"),
                Query(expr=f"{accusations('7d')} and {_MOST_ACCUSED}", legend="within 7 days",
                      steps=((None, PLAIN), (2, BAD))),
            ),
            links={"node": node_links()},
        ),
        Panel(
            id=13, kind="lines", title="Journals: delay of the newest event", width=6, empty=NO_RUN, unit="s", low=0,
            says="How old the newest event was when the ledger read it, the median and the worst of the runs. On NFS a "
                 "new file may take a minute to show.",
            queries=(
                Query(expr=f"max ({ledger('journal_lag_seconds', RUNS)})", legend="worst run", colour=LATE),
                Query(expr=f"quantile (0.5, {ledger('journal_lag_seconds', RUNS)})", legend="median", colour=PEER),
            ),
        ),
        Panel(
            id=14, kind="lines", title="Places that could not be read", width=6, empty=NO_RUN, low=0,
            says="Lines and files of the run directories that could not be read: what is shown may be incomplete. "
                 "`lastgood incidents` names them.",
            queries=(Query(expr=total("journal_unreadable_lines_total", RUNS), legend="places", colour=LATE),),
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="fleet", uid=UIDS["fleet"], title="lastgood: fleet", since="now-24h", runs=RUNS,
    says="All runs: open incidents, checkpoints that must not be used, checks that have not passed in time.",
    variables=(run_variable(many=True),),
    rows=(NOW, TABLES, TRENDS, LEDGER),
    console=Link("Console", "${console}/"),
)  # fmt: skip
