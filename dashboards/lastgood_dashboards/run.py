"""Show one run: is it healthy, and if not, from where to resume."""

from __future__ import annotations

from typing import Final

from lastgood.catalogue import PREFIX
from lastgood_dashboards import ranks
from lastgood_dashboards.incidents import open_count, open_incidents
from lastgood_dashboards.links import UIDS, node_links
from lastgood_dashboards.queries import (
    NO_RUN,
    POINTS,
    chosen,
    late,
    ledger,
    run_variable,
    step_times,
    where,
    with_gpu,
)  # fmt: skip
from lastgood_dashboards.spec import (
    BAD,
    FAINT,
    GOOD,
    LATE,
    PEER,
    PLAIN,
    Board,
    Link,
    Panel,
    Query,
    Row,
    Variable,
)  # fmt: skip
from lastgood_dashboards.trust import resume_step

RUN: Final = 'run="$run"'
NODE: Final = 'node=~"$node"'
NO_RANK: Final = "No sample from a rank"
NO_CHECK: Final = "No check runs, or none has begun"
RANK_LEGEND: Final = "rank {{rank}}, {{node}}, {{gpu_uuid}}"

NOW: Final = Row(
    id=100, title="Now",
    panels=(
        resume_step(1, RUN),
        Panel(
            id=2, kind="stat", title="Open incidents", width=5, height=4, empty=NO_RUN,
            says="Incidents of this run that are open or reopened.",
            queries=(Query(expr=open_count(RUN), legend="open"),),
            steps=((None, PLAIN), (1, BAD)),
        ),
        Panel(
            id=3, kind="stat", title="Step", width=5, height=4, empty=NO_RUN,
            says="Last step that the journal knows of.",
            queries=(Query(expr=ledger("run_step", RUN), legend="step"),),
        ),
        Panel(
            id=4, kind="stat", title="Attempt", width=5, height=4, empty=NO_RUN,
            says="Number of the newest attempt: the starts and restarts of the run.",
            queries=(Query(expr=ledger("run_attempt", RUN), legend="attempt"),),
        ),
        Panel(
            id=5, kind="stat", title="Last heard", width=4, height=4, empty=NO_RUN, unit="s", decimals=0,
            says="Seconds since the newest event in the journal. A run that trains is heard every 30 seconds; one that "
                 "has ended is not heard any more.",
            queries=(
                Query(expr=f"time() - {ledger('run_last_event_timestamp_seconds', RUN)}", legend="last heard"),
            ),
        ),
    ),
)  # fmt: skip

INCIDENTS: Final = Row(id=110, title="Incidents", panels=(open_incidents(6, RUN, one_run=True),))

LEFT: Final = f"{ledger('check_due_step', RUN, by='run, check')} - on (run) group_left () {ledger('run_step', RUN)}"

CHECKS: Final = Row(
    id=120, title="Checks: silence is not health",
    panels=(
        Panel(
            id=7, kind="lines", title="Steps left until a check is overdue", width=9, empty=NO_CHECK,
            says="A check must pass again within three of its cadences. Below zero it is overdue. A check that is "
                 "switched off or cannot run has no line.",
            queries=(Query(expr=f"max by (check) ({LEFT})", legend="{{check}}"),),
            steps=((None, LATE), (0, "transparent")),
        ),
        Panel(
            id=8, kind="states", title="Checks in time", width=9, empty=NO_CHECK,
            says="Whether each check passed in time. A gap: the ledger was not scraped, or the check did not run.",
            queries=(Query(expr=f"max by (check) ({late(RUN)})", legend="{{check}}"),),
            texts={"0": ("in time", FAINT), "1": ("overdue", LATE)},
        ),
        Panel(
            id=9, kind="lines", title="Findings", width=6, empty=NO_RUN, low=0,
            says="Findings of the run so far, by check.",
            queries=(Query(expr=ledger("findings_total", RUN, by="run, check"), legend="{{check}}"),),
        ),
        Panel(
            id=21, kind="lines", title="Step time that checks take", width=12, height=6, empty=NO_RUN,
            unit="percentunit", low=0,
            says="Share of step time, measured in the last steps, without the checks of saves. With a budget the "
                 "cadences follow it.",
            queries=(Query(expr=ledger("check_time_ratio", RUN), legend="checks"),),
        ),
        Panel(
            id=22, kind="lines", title="Steps between two runs of a check", width=12, height=6, empty=NO_CHECK, low=0,
            says="The cadence in force. It grows while the checks take more than the budget.",
            queries=(Query(expr=ledger("check_interval_steps", RUN, by="run, check"), legend="{{check}}"),),
        ),
    ),
)  # fmt: skip

_LOCAL: Final = ranks.norms(RUN, NODE)
_REDUCED: Final = ranks.norms(RUN, NODE, stage="reduced")
_NAMED: Final = ranks.suspects(RUN, 2)
_SUSPECT: Final = with_gpu(f"({chosen(ranks.norms(RUN), _NAMED)})", _NAMED, RUN)

GRADIENTS: Final = Row(
    id=130, title="Gradients: context only, a metric never accuses",
    panels=(
        Panel(
            id=10, kind="lines", title="Gradient norm before the averaging", points=POINTS, width=12, empty=NO_RANK,
            says="Median over the ranks with the 10th and 90th percentile, and at most two ranks that an incident has "
                 "named within the time range. Sampled by the scrape: the journal has the spikes.",
            queries=(
                Query(expr=f"quantile (0.9, {_LOCAL})", legend="p90", colour=PEER, band_to="p10"),
                Query(expr=f"quantile (0.5, {_LOCAL})", legend="median", colour=PLAIN),
                Query(expr=f"quantile (0.1, {_LOCAL})", legend="p10", colour=PEER),
                Query(expr=f"max by (node, rank, gpu_uuid) ({_SUSPECT})", legend=f"suspect: {RANK_LEGEND}", colour=BAD),
            ),
            links={"": node_links("${__field.labels.node}")},
        ),
        Panel(
            id=11, kind="lines", title="Gradient norm after the averaging", points=POINTS, width=6, empty=NO_RANK,
            says="All ranks should hold the same averaged gradient: the two lines should be one.",
            queries=(
                Query(expr=f"max ({_REDUCED})", legend="highest", colour=PEER),
                Query(expr=f"min ({_REDUCED})", legend="lowest", colour=PLAIN),
            ),
        ),
        Panel(
            id=12, kind="heat", title="Ranks by norm over the median", points=POINTS // 2, width=6, empty=NO_RANK,
            says="How many ranks have which gradient norm, as a multiple of the median; the highest row is 3 and more. "
                 "Works for any number of ranks.",
            queries=(Query(expr=ranks.rows_by_ratio(RUN, NODE), legend="{{ratio}}"),),
        ),
        Panel(
            id=13, kind="states", title="The 20 ranks furthest from the median", width=24, height=10, empty=NO_RANK,
            unit="percentunit", decimals=0, points=POINTS // 2,
            says="Distance of a rank's gradient norm from the median, as a share of the median. The ranks are chosen "
                 "by their last sample within the hour before the end of the time range.",
            queries=(
                Query(expr=ranks.distances(ranks.furthest(20, RUN, NODE), RUN, NODE), legend=RANK_LEGEND),
            ),
            steps=ranks.DISTANCE_STEPS,
            links={"": node_links("${__field.labels.node}")},
        ),
    ),
)  # fmt: skip

_DEADLINE: Final = f"{PREFIX}step_deadline_timestamp_seconds{where(RUN, NODE)} < +Inf"

TIME: Final = Row(
    id=140, title="Time",
    panels=(
        Panel(
            id=14, kind="lines", title="Step time", points=POINTS, width=6, empty=NO_RANK, unit="s", low=0,
            says="Time from the end of one step to the end of the next, over the ranks.",
            queries=step_times(RUN, NODE),
        ),
        Panel(
            id=15, kind="lines", title="Time left to finish the step", width=6, empty="No deadline known", unit="s",
            points=POINTS,
            says="The process itself knows how long its next step may take: a first step, an evaluation and a save may "
                 "take longer. Below zero the step has stalled.",
            queries=(
                Query(expr=f"quantile (0.5, {_DEADLINE}) - time()", legend="median", colour=PLAIN),
                Query(expr=f"min ({_DEADLINE}) - time()", legend="the rank with the least", colour=PEER),
            ),
            steps=((None, LATE), (0, "transparent")),
        ),
        Panel(
            id=16, kind="lines", title="What the time went into", width=6, empty=NO_RUN, unit="s", low=0, stacked=True,
            says="Time of the run by state. Steps turn from productive to lost when the run resumes before them.",
            queries=(
                Query(expr=ledger("run_seconds", RUN, by="run, state"), legend="{{state}}"),
            ),
        ),
        Panel(
            id=17, kind="lines", title="Goodput", width=6, empty=NO_RUN, unit="percentunit", low=0, high=1,
            says="Share of the time that went into steps that were kept: over the last hour, over the whole run.",
            queries=(
                Query(expr=ledger("goodput_ratio", RUN, by="run, window"), legend="{{window}}"),
            ),
        ),
    ),
)  # fmt: skip


def _rank_total(name: str, label: str) -> str:
    return f"sum by ({label}) ({PREFIX}{name}{where(RUN, NODE)})"


EXPORTER: Final = Row(
    id=150, title="Ranks",
    panels=(
        Panel(
            id=18, kind="lines", title="Steps with a NaN or an infinity", points=POINTS, width=8, empty=NO_RANK, low=0,
            says="Counted by each rank since its attempt began, and added up. The findings above outlive the attempt.",
            queries=(Query(expr=_rank_total("nonfinite_steps_total", "stage"), legend="{{stage}}"),),
        ),
        Panel(
            id=19, kind="lines", title="Failures of lastgood itself", points=POINTS, width=8, empty=NO_RANK, low=0,
            says="The training went on; a check, a sensor, the journal or a delivery did not work. Counted since the "
                 "attempt began.",
            queries=(Query(expr=_rank_total("exporter_errors_total", "part"), legend="{{part}}"),),
        ),
        Panel(
            id=20, kind="lines", title="Ranks that Prometheus sees", points=POINTS, width=8, empty=NO_RUN, low=0,
            says="Ranks of the run, and those of them that answer the scrape.",
            queries=(
                Query(expr=ledger("run_world_size", RUN), legend="of the run", colour=PEER),
                Query(expr=f"count (max by (run, rank) ({PREFIX}rank_info{where(RUN)}))", legend="seen", colour=GOOD),
            ),
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="run", uid=UIDS["run"], title="lastgood: run", since="now-1h", runs=RUN,
    says="One run: incidents, when each check last passed, gradient norms, step time, goodput.",
    variables=(
        run_variable(many=False),
        Variable(name="node", label="Node", says="Nodes of the run: filters what ranks say of themselves", many=True,
                 query='label_values(lastgood_rank_info{run="$run"}, node)'),
    ),
    rows=(NOW, INCIDENTS, CHECKS, GRADIENTS, TIME, EXPORTER),
    console=Link("Run in the console", "${console}/?run=${run}"),
)  # fmt: skip
