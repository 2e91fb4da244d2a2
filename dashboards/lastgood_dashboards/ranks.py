"""Write the PromQL about the gradient norms of the ranks, for any number of them."""

from __future__ import annotations

from typing import Final

from lastgood.catalogue import PREFIX
from lastgood_dashboards.queries import RECENT, chosen, known, latest, quantile, where, with_gpu
from lastgood_dashboards.spec import NEUTRAL_RAMP, Steps

DISTANCE_STEPS: Final[Steps] = tuple(zip((None, 0.1, 0.25, 0.5, 1.0), NEUTRAL_RAMP, strict=True))
"""From which distance a rank is drawn how dark."""


def norms(*matchers: str, stage: str = "local") -> str:
    """Return the gradient norm of each rank before (local) or after (reduced) the averaging."""
    return known(_grad_norm(stage, *matchers))


def _grad_norm(stage: str, *matchers: str) -> str:
    stage_matcher = f'stage="{stage}"'
    return f"{PREFIX}grad_norm{where(stage_matcher, *matchers)}"


def rows_by_ratio(run: str, *matchers: str) -> str:
    """Return how many ranks of one run have each ratio to its median, in tenths, up to 3.

    At most 31 rows for any number of ranks. ``run`` matches one run; the median is over all of its ranks.
    """
    ratio = f"{norms(run, *matchers)} / scalar(quantile (0.5, {norms(run)}))"
    return f'count_values ("ratio", clamp_max(round({ratio}, 0.1), 3))'


def distances(selection: str, runs: str, *matchers: str) -> str:
    """Return how far each rank of ``selection`` is from the median of its run, as a share of the median.

    The ranks are chosen before anything is joined: at 16,384 ranks a join is the dear part.
    """
    few = f"({chosen(norms(runs, *matchers), selection)}) / on (run) group_left () {quantile(0.5, norms(runs))}"
    return f"max by (run, node, rank, gpu_uuid) (abs(({with_gpu(f'({few})', selection, runs, *matchers)}) - 1))"


def furthest(count: int, runs: str, *matchers: str) -> str:
    """Return the ``count`` ranks that were furthest from the median in their last sample."""
    now, every = (
        f"last_over_time({_grad_norm('local', *chosen)}[{RECENT}] @ end())" for chosen in ((runs, *matchers), (runs,))
    )
    ratio = f"{known(now)} / on (run) group_left () {quantile(0.5, known(every))}"
    return f"topk({count}, max by (run, node, rank) (abs({ratio} - 1)))"


def suspects(runs: str, count: int) -> str:
    """Return ranks that an incident named within the time range, even if it is not open any more."""
    return f"topk({count}, {latest('incident_resume_step', runs, by='run, node, rank')})"
