"""Write the PromQL about the gradient norms of the ranks, for any number of them."""

from __future__ import annotations

from lastgood.catalogue import PREFIX
from lastgood_dashboards.queries import RECENT, chosen, known, latest, quantile, where, with_gpu


def norms(*matchers: str, stage: str = "local") -> str:
    """Return the gradient norm of each rank before (local) or after (reduced) the averaging."""
    return known(_grad_norm(stage, *matchers))


def _grad_norm(stage: str, *matchers: str) -> str:
    stage_matcher = f'stage="{stage}"'
    return f"{PREFIX}grad_norm{where(stage_matcher, *matchers)}"


def ratios(runs: str, *matchers: str) -> str:
    """Return each rank's norm over the median of its run; ``matchers`` choose ranks, the median is over all."""
    return f"{norms(runs, *matchers)} / on (run) group_left () {quantile(0.5, norms(runs))}"


def rows_by_ratio(runs: str, *matchers: str) -> str:
    """Return how many ranks have each ratio, in tenths, up to 3: at most 31 rows for any number of ranks."""
    return f'count_values ("ratio", clamp_max(round({ratios(runs, *matchers)}, 0.1), 3))'


def distances(selection: str, runs: str, *matchers: str) -> str:
    """Return how far each rank of ``selection`` is from the median of its run, as a share of the median.

    The ranks are chosen before they are joined with their GPUs: at 16,384 ranks the join is the dear part.
    """
    few = chosen(ratios(runs, *matchers), selection)
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
