"""Show one node and its GPUs: what they draw, how warm they are, and whether they have lied before."""

from __future__ import annotations

from typing import Final

from lastgood.catalogue import PREFIX
from lastgood_dashboards import ranks
from lastgood_dashboards.links import UIDS, run_links
from lastgood_dashboards.queries import POINTS, RECENT, accusations, chosen, step_times, where, with_gpu
from lastgood_dashboards.spec import (
    BAD,
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

RUNS: Final = 'run=~"$run"'
NODE: Final = 'node="$node"'
HERE: Final = (RUNS, NODE)
NO_RANK: Final = "No rank of this node answers the scrape"
NO_SENSOR: Final = "No such sensor on this node"
NO_ACCUSATION: Final = "Never accused within 90 days"
BY: Final = "node, gpu_uuid, rank, run"
GPU_LEGEND: Final = "{{node}}, {{gpu_uuid}}, rank {{rank}}"


def device(name: str, *matchers: str, by: str = BY) -> str:
    """Return a series of the node's GPUs, with the GPU that each rank runs on."""
    return f"max by ({by}) ({with_gpu(PREFIX + name + where(*HERE, *matchers), '', *HERE)})"


def few(pick: str, name: str, *matchers: str) -> str:
    """Return the ranks that ``pick`` (such as ``topk(5``) chooses by their last sample of the hour before the end."""
    last = f"last_over_time({PREFIX}{name}{where(*HERE, *matchers)}[{RECENT}] @ end())"
    return f"{pick}, max by (run, node, rank) ({last}))"


def line(pick: str, name: str, *matchers: str) -> Query:
    """Return the lines of a sensor of the GPUs that ``pick`` chooses."""
    return Query(expr=chosen(device(name, *matchers), few(pick, name, *matchers)), legend=GPU_LEGEND)


_ENERGY: Final = "gpu_energy_joules_total"
_MEAN_POWER: Final = with_gpu(f"rate({PREFIX}{_ENERGY}{where(*HERE)}[$__rate_interval])", "", *HERE)
_RUN_MEDIAN: Final = f"quantile (0.5, {PREFIX}gpu_power_watts{where(RUNS)})"

NOW: Final = Row(
    id=100, title="Now",
    panels=(
        Panel(
            id=1, kind="stat", title="Ranks that answer", width=5, height=4, empty=NO_RANK,
            says="Ranks on this node that Prometheus sees.",
            queries=(
                Query(expr=f"count (max by (run, rank) ({PREFIX}rank_info{where(*HERE)}))", legend="ranks"),
            ),
        ),
        Panel(
            id=2, kind="stat", title="Accusations in 7 days", width=5, height=4, empty=NO_ACCUSATION,
            says="Incidents of the last 7 days that named a device of this node, over all runs and restarts.",
            queries=(Query(expr=f"sum ({accusations('7d', '$node')})", legend="7 days"),),
            steps=((None, PLAIN), (1, LATE), (2, BAD)),
        ),
        Panel(
            id=3, kind="stat", title="Accusations in 90 days", width=5, height=4, empty=NO_ACCUSATION,
            says="Incidents of the last 90 days that named a device of this node, over all runs and restarts.",
            queries=(Query(expr=f"sum ({accusations('90d', '$node')})", legend="90 days"),),
            steps=((None, PLAIN), (1, LATE), (2, BAD)),
        ),
        Panel(
            id=4, kind="stat", title="Least thermal margin", width=5, height=4, empty=NO_SENSOR, unit="celsius",
            says="Degrees left before the first GPU of this node slows itself down.",
            queries=(
                Query(expr=f"min ({PREFIX}gpu_temperature_margin_celsius{where(*HERE)})", legend="margin"),
            ),
            steps=((None, LATE), (5, PLAIN)),
        ),
        Panel(
            id=5, kind="stat", title="Uncorrectable memory errors", width=4, height=4, empty=NO_SENSOR,
            says="Of the GPUs of this node together, as their drivers count them.",
            queries=(
                Query(expr=f"sum (max by (gpu_uuid) ({device('gpu_ecc_uncorrected_total')}))", legend="errors"),
            ),
            steps=((None, PLAIN), (1, BAD)),
        ),
    ),
)  # fmt: skip

_LABELS: Final = "run, rank, gpu_uuid"

TABLES: Final = Row(
    id=110, title="Devices",
    panels=(
        Panel(
            id=6, kind="table", title="GPUs of this node", width=16, empty=NO_RANK,
            labels=("run", "rank", "gpu_uuid"),
            says="What each GPU says now. A node without GPUs shows the slots of its processes. Empty: no such sensor.",
            queries=(
                Query(expr=f"time() - {device('step_timestamp_seconds', by=_LABELS)}", legend="last step", unit="s"),
                Query(expr=device("gpu_power_watts", by=_LABELS), legend="power", unit="watt"),
                Query(expr=device("gpu_energy_joules_total", by=_LABELS), legend="energy", unit="joule"),
                Query(expr=device("gpu_temperature_celsius", 'sensor="core"', by=_LABELS), legend="core",
                      unit="celsius"),
                Query(expr=device("gpu_temperature_celsius", 'sensor="memory"', by=_LABELS), legend="memory",
                      unit="celsius"),
                Query(expr=device("gpu_temperature_margin_celsius", by=_LABELS), legend="margin", unit="celsius",
                      steps=((None, LATE), (5, PLAIN))),
                Query(expr=device("gpu_ecc_uncorrected_total", by=_LABELS), legend="memory errors",
                      steps=((None, PLAIN), (1, BAD))),
            ),
            links={"run": run_links()},
        ),
        Panel(
            id=7, kind="table", title="Accusations", width=8, empty=NO_ACCUSATION, labels=("gpu_uuid",),
            says="Incidents that named a device of this node, over all runs and restarts.",
            queries=(
                Query(expr=f"max by (gpu_uuid) ({accusations('90d', '$node')})", legend="within 90 days"),
                Query(expr=f"max by (gpu_uuid) ({accusations('7d', '$node')})", legend="within 7 days",
                      steps=((None, PLAIN), (2, BAD))),
            ),
        ),
    ),
)  # fmt: skip

SENSORS: Final = Row(
    id=120, title="Sensors: context only, a metric never accuses",
    panels=(
        Panel(
            id=8, kind="lines", title="Power", points=POINTS, width=12, empty=NO_SENSOR, unit="watt", low=0,
            says="The four GPUs that draw the most at the end of the time range, and the median over all GPUs of the "
                 "selected runs, on all nodes.",
            queries=(
                line("topk(4", "gpu_power_watts"),
                Query(expr=_RUN_MEDIAN, legend="median of the runs", colour=PEER),
            ),
        ),
        Panel(
            id=9, kind="lines", title="Mean power by the energy counter", width=12, empty=NO_SENSOR, unit="watt", low=0,
            says="Energy used between two samples over the time between them: no swing is missed. The five GPUs that "
                 "had used the most energy.",
            queries=(
                Query(expr=chosen(f"max by ({BY}) ({_MEAN_POWER})", few("topk(5", _ENERGY)), legend=GPU_LEGEND),
            ),
        ),
        Panel(
            id=10, kind="lines", title="Margin to the thermal limit", width=12, empty=NO_SENSOR, unit="celsius",
            says="Degrees left before a GPU slows itself down, by its own limit: the five GPUs with the least.",
            queries=(line("bottomk(5", "gpu_temperature_margin_celsius"),),
            steps=((None, LATE), (5, "transparent")),
        ),
        Panel(
            id=11, kind="lines", title="Uncorrectable memory errors over time", width=12, empty=NO_SENSOR, low=0,
            says="Errors that the memory could not correct, as the driver counts them: the five GPUs with the most.",
            queries=(line("topk(5", "gpu_ecc_uncorrected_total"),),
        ),
        Panel(
            id=12, kind="lines", title="Core temperature", width=12, empty=NO_SENSOR, unit="celsius",
            says="The five GPUs that are warmest at the end of the time range.",
            queries=(line("topk(5", "gpu_temperature_celsius", 'sensor="core"'),),
        ),
        Panel(
            id=13, kind="lines", title="Memory temperature", width=12, empty=NO_SENSOR, unit="celsius",
            says="The five GPUs whose memory is warmest at the end of the time range.",
            queries=(line("topk(5", "gpu_temperature_celsius", 'sensor="memory"'),),
        ),
    ),
)  # fmt: skip

_FAILURES: Final = f"max by (run, node, rank, check) ({PREFIX}check_failures_total{where(*HERE)})"

RANKS: Final = Row(
    id=130, title="Ranks on this node",
    panels=(
        Panel(
            id=14, kind="states", title="Distance of the gradient norm from the median", width=12, empty=NO_RANK,
            unit="percentunit", decimals=0, points=POINTS // 2,
            says="Distance of each rank's gradient norm from the median of its run, over all nodes: at most 16 ranks, "
                 "those furthest at the end of the time range.",
            queries=(
                Query(expr=ranks.distances(ranks.furthest(16, RUNS, NODE), RUNS, NODE), legend=GPU_LEGEND),
            ),
            steps=ranks.DISTANCE_STEPS,
        ),
        Panel(
            id=15, kind="lines", title="Step time", width=6, empty=NO_RANK, unit="s", low=0,
            says="Time from the end of one step to the end of the next, over the ranks of this node.",
            queries=step_times(*HERE),
        ),
        Panel(
            id=16, kind="lines", title="Checks in which this node was the odd one out", width=6, empty=NO_RANK, low=0,
            says="Times a check failed with a rank of this node in the minority or among the candidates, since its "
                 "attempt began. A rank that exits at once is not scraped again: the incidents have them all.",
            queries=(Query(expr=f"sum by (check) ({_FAILURES})", legend="{{check}}"),),
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="node", uid=UIDS["node"], title="lastgood: node and GPU", since="now-6h", runs=RUNS,
    says="One node and its GPUs, over all runs: accusations, power, temperature, memory errors, its ranks.",
    variables=(
        Variable(name="node", label="Node", says="Nodes with a rank, and nodes that were accused", many=False,
                 query='label_values({__name__=~"lastgood_rank_info|lastgood_node_accusations"}, node)'),
        Variable(name="run", label="Run", says="Runs that have had a rank on this node", many=True,
                 query='label_values(lastgood_rank_info{node="$node"}, run)'),
    ),
    rows=(NOW, TABLES, SENSORS, RANKS),
    console=Link("Node in the console", "${console}/nodes?node=${node}"),
)  # fmt: skip
