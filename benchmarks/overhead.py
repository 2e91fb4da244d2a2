"""Measure what the default checks cost a training step.

    python benchmarks/overhead.py [--quick] [--sharded] [--length N] [--steps N] [--replica-every N]
        [--replay-every N] [--at-rest-every N]

Two ranks of one thread each (gloo, ``DistributedDataParallel``, or ``fully_shard`` with ``--sharded``), on two node
names so that replay has a partner. Each process trains two identical models on identical batches, one watched and one
plain, step by step in turn; which comes first alternates. So both see the same noise of the machine, and a cost is the
median over pairs of neighbours.

A pair is sorted by the checks that ran in it, as the monitor's own counters say; ``state`` is the replica check that
reads the optimizer state as well, at every ``STATE_EVERY`` steps. The cost of a check is what its pairs
cost beyond the others, and its share is that cost at the default cadence. Both by wall clock (the slower rank) and by
processor time (the sum of both), which other programs on the machine disturb less.

The cost of the checks of every step depends on the parameters alone, the step's time on the tokens as well: the share
falls as ``--length`` grows (8 rows of so many tokens per rank and step). 4,096 tokens are few: nanoGPT's recipe for
GPT-2 has 12 rows of 1,024 on each GPU, five times a step.

Prints one JSON object. Exit code 1 when a check never ran or the watched weights are not those of the plain model.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from prometheus_client import CollectorRegistry
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import lastgood
from lastgood.config import Config
from lastgood.demo.train import leave

CHECKS = ("finite", "conservation", "replica", "replay", "at_rest")
STATE_EVERY = 11
WORLD = 2
VOCABULARY = 256
WARM_UP = 3
"""Pairs at the start that are left out: buckets are rebuilt, memory is allocated, the first step is audited."""

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one measurement does."""

    steps: int = 60
    replica_every: int = 8
    replay_every: int = 20
    at_rest_every: int = 7
    width: int = 384
    layers: int = 6
    rows: int = 8
    length: int = 512
    sharded: bool = False


QUICK = Settings(steps=24, replica_every=3, replay_every=6, at_rest_every=4, width=32, layers=1, rows=2, length=16)


class Cost(NamedTuple):
    """One step of one model on one rank."""

    wall_seconds: float
    cpu_seconds: float


class Model(nn.Module):
    """A causal transformer over bytes."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, width // 32, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        hidden = self.bytes(tokens) + self.places(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        logits: Tensor = self.head(hidden)
        return logits


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def batch_of(settings: Settings, step: int, rank: int) -> Batch:
    """Return the batch of a step, and leave the random state that its dropout starts from."""
    torch.manual_seed(1000 * step + rank)
    tokens = torch.randint(VOCABULARY, (settings.rows, settings.length + 1))
    return tokens[:, :-1], tokens[:, 1:]


def sharded(model: Model) -> nn.Module:
    """Shard each layer, and what is around them, over all ranks."""
    mesh = init_device_mesh("cpu", (WORLD,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def here(tensor: Tensor) -> Tensor:
    """Return what this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Training:
    """One model with its optimizer. ``loss`` is the plain or the watched way to the loss."""

    def __init__(self, settings: Settings, rank: int) -> None:
        torch.manual_seed(0)
        self.settings, self.rank = settings, rank
        model = Model(settings.width, settings.layers, settings.length)
        self.model = sharded(model) if settings.sharded else DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.loss: Callable[[Any], Any] = lambda batch: loss_of(self.model, batch)

    def step(self, number: int) -> Cost:
        batch = batch_of(self.settings, number, self.rank)
        dist.barrier()
        wall, cpu = time.perf_counter(), time.process_time()
        self.loss(batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return Cost(time.perf_counter() - wall, time.process_time() - cpu)


class Pair(NamedTuple):
    """A watched and a plain step in turn; ``ran`` are the periodic checks that ran in the first."""

    watched: Cost
    plain: Cost
    ran: tuple[str, ...]


def counts(registry: CollectorRegistry) -> dict[str, int]:
    samples = [s for family in registry.collect() for s in family.samples if s.name == "lastgood_check_runs_total"]
    return {name: sum(int(s.value) for s in samples if s.labels["check"] == name) for name in CHECKS}


def measure(settings: Settings, rank: int, run_dir: str) -> dict[str, Any]:
    """Train both models in turn; return this rank's pairs and counts."""
    registry = CollectorRegistry()
    watched, plain = Training(settings, rank), Training(settings, rank)
    monitor = lastgood.watch(
        watched.model,
        watched.optimizer,
        loss_fn=loss_of,
        run_dir=run_dir,
        registry=registry,
        replica_every=settings.replica_every,
        replay_every=settings.replay_every,
        at_rest_every=settings.at_rest_every,
        state_every=STATE_EVERY,
        node=f"node-{rank}",
        metrics_address="127.0.0.1",
    )
    watched.loss = monitor.loss
    pairs = []
    for step in range(1, settings.steps + 1):
        before = counts(registry)
        order = (watched, plain) if step % 2 else (plain, watched)
        costs = {training: training.step(step) for training in order}
        ran = tuple(name for name in ("replica", "replay", "at_rest") if counts(registry)[name] > before[name])
        ran += ("state",) if step % STATE_EVERY == 0 else ()
        pairs.append(Pair(costs[watched], costs[plain], ran))
    runs = counts(registry)
    monitor.close()
    both = zip(watched.model.parameters(), plain.model.parameters(), strict=True)
    return {
        "pairs": pairs,
        "runs": runs,
        "parameters": sum(p.numel() for p in plain.model.parameters()),
        "same_weights": all(torch.equal(here(a), here(b)) for a, b in both),
    }


def work(rank: int, settings: Settings, folder: str) -> None:
    """Measure on one rank; rank 0 writes what all of them saw."""
    os.environ["LASTGOOD_NODE"] = f"node-{rank}"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    mine = measure(settings, rank, f"{folder}/run")
    everybody: list[Any] = [None] * WORLD
    dist.all_gather_object(everybody, mine)
    if rank == 0:
        Path(folder, "report.json").write_text(json.dumps(report(settings, everybody)))
    leave(0)  # without tearing gloo down


def merged(rows: tuple[Pair, ...]) -> Pair:
    """Return one pair for the job: the slower rank's wall clock, both ranks' processor time."""

    def of(costs: list[Cost]) -> Cost:
        return Cost(max(c.wall_seconds for c in costs), sum(c.cpu_seconds for c in costs))

    return Pair(of([r.watched for r in rows]), of([r.plain for r in rows]), rows[0].ran)


def report(settings: Settings, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    pairs = [merged(rows) for rows in zip(*(rank["pairs"] for rank in ranks), strict=True)][WARM_UP:]
    runs = {name: min(rank["runs"][name] for rank in ranks) for name in CHECKS}
    same = all(rank["same_weights"] for rank in ranks)
    return {
        "torch": torch.__version__,
        "ranks": WORLD,
        "wrapper": "fully_shard" if settings.sharded else "DistributedDataParallel",
        "threads_per_rank": 1,
        "parameters": ranks[0]["parameters"],
        "tokens_per_rank_and_step": settings.rows * settings.length,
        "steps": settings.steps,
        "cadence_measured": {
            "replica": settings.replica_every,
            "replay": settings.replay_every,
            "at_rest": settings.at_rest_every,
            "state": STATE_EVERY,
        },
        "cadence_default": {
            "replica": Config().replica_every,
            "replay": Config().replay_every,
            "at_rest": Config().at_rest_every,
            "state": Config().state_every,
        },
        "runs": runs,
        "same_weights_as_unwatched": same,
        "wall": shares(pairs, lambda cost: cost.wall_seconds),
        "cpu": shares(pairs, lambda cost: cost.cpu_seconds),
        "passed": same and all(count > 0 for count in runs.values()),
    }


def shares(pairs: list[Pair], seconds: Callable[[Cost], float]) -> dict[str, Any]:
    """Return cost in milliseconds and share of the run at the default cadences, per check and in all."""
    plain = statistics.median(seconds(pair.plain) for pair in pairs)

    def over(ran: tuple[str, ...]) -> float:
        return plain * statistics.median(
            seconds(pair.watched) / seconds(pair.plain) - 1 for pair in pairs if pair.ran == ran
        )

    every = over(())
    replica = over(("replica",)) - every
    replay = over(("replica", "replay")) - every - replica  # weights are compared just before every replay
    at_rest = over(("at_rest",)) - every
    state = over(("replica", "state")) - every - replica
    default = Config()
    costs = {
        "finite_and_conservation": (every, 1),
        "replica": (replica, default.replica_every),
        "replay": (replay, default.replay_every),
        "at_rest": (at_rest, default.at_rest_every),
        "state": (state, default.state_every),
    }
    each = {
        name: {"milliseconds": 1e3 * cost, "every_steps": cadence, "share_of_run": cost / cadence / plain}
        for name, (cost, cadence) in costs.items()
    }
    return {
        "plain_step_milliseconds": 1e3 * plain,
        "pairs": len(pairs),
        "checks": each,
        "share_of_run": sum(row["share_of_run"] for row in each.values()),
    }


def settings_from(given: argparse.Namespace) -> Settings:
    if given.quick:
        return replace(QUICK, sharded=given.sharded)
    return Settings(
        steps=given.steps, replica_every=given.replica_every, replay_every=given.replay_every,
        at_rest_every=given.at_rest_every, length=given.length, sharded=given.sharded,
    )  # fmt: skip


def main() -> int:
    default = Settings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test in seconds; its numbers are no measurement")
    parser.add_argument(
        "--sharded", action="store_true", help="shard the model with fully_shard instead of wrapping it"
    )
    parser.add_argument("--length", type=int, default=default.length, help="tokens in each of the 8 rows")
    parser.add_argument("--steps", type=int, default=default.steps)
    parser.add_argument("--replica-every", type=int, default=default.replica_every)
    parser.add_argument("--replay-every", type=int, default=default.replay_every)
    parser.add_argument("--at-rest-every", type=int, default=default.at_rest_every)
    settings = settings_from(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (settings, folder), nprocs=WORLD)  # type: ignore[no-untyped-call]
        result = json.loads(Path(folder, "report.json").read_text())
    print(json.dumps(result, indent=2))
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
