"""Plan a drill: which faults, on which ranks and steps, in which order. Pure: the same seed gives the same plan.

Every trial is a training of its own. The first ones are clean: they are the reference of all trials with their seed,
and controls at the same time. ``arbiter`` is two devices with different permanent faults, so that whichever rank is
asked to settle a dispute may be the other broken one. ``checkpoint`` is a byte that changes on disk after the save.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, get_args

from lastgood.fault_specs import KINDS, LAYER_SITES, Fault, When

Sort = Literal["fault", "clean", "sharded", "threads", "unordered", "plain"]
"""``sharded``: clean, under ``fully_shard``. ``threads``: each rank has another number of threads. ``unordered``: a
reduction in another order at every run.
``plain``: a user's script without any check."""

ROWS: Final[Mapping[str, tuple[str, str]]] = {
    "activation": ("activation", ""),
    "gradient": ("gradient", ""),
    "weight gradient": ("weight-gradient", ""),
    "local bucket": ("bucket", ""),
    "reduced, all ranks": ("reduce-all", ""),
    "reduced, one rank": ("reduce-one", ""),
    "weight": ("weight", ""),
    "optimizer exp_avg": ("optimizer", "exp_avg"),
    "optimizer exp_avg_sq": ("optimizer", "exp_avg_sq"),
    "at rest": ("at-rest", ""),
}
"""Row of the score -> (site of the injector, moment of the optimizer)."""

BATCH, CHECKPOINT, ARBITER, CONTROL = "batch", "checkpoint", "arbiter", "control"
OWN_ROWS: Final = (BATCH, CHECKPOINT, ARBITER)
ALL_ROWS: Final = (*ROWS, *OWN_ROWS)
COLUMNS: Final = tuple(kind for kind in KINDS if kind != "bit")
BYTE: Final = "byte"
WHENS: Final = get_args(When)
LAYERS: Final = 3
"""Places in the model at which a fault of a layer can be."""
CHANCE: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training. ``seed`` chooses model, batches and dropout; ``reloads``: it is resumed from its last save."""

    name: str
    row: str
    kind: str = ""
    when: str = ""
    sort: Sort = "fault"
    faults: tuple[Fault, ...] = ()
    layer: int = 0
    rot: int | None = None
    reloads: bool = False
    seed: int = 0
    steps: int = 24
    replica_every: int = 4
    state_every: int = 8
    replay_every: int = 8
    at_rest_every: int = 4
    save_every: int = 12
    reference: str = ""
    """The clean trial with the same seed; empty for a control."""

    @property
    def ranks(self) -> frozenset[int]:
        """Return the ranks whose device is broken; of ``reduce-all`` none is."""
        return frozenset(f.rank for f in self.faults if f.site not in ("reduce-all", "batch"))

    def audits(self, step: int) -> bool:
        """Tell whether replay audits step ``step``."""
        return step == 1 or step % self.replay_every == 0

    def compares(self, step: int) -> bool:
        """Tell whether replicas are compared within step ``step``, on the weights before it."""
        return step % self.replica_every == 0 or self.reads_state(step) or self.audits(step)

    def reads_state(self, step: int) -> bool:
        """Tell whether that comparison reads the optimizer state as well."""
        return step % self.state_every == 0

    def rests(self, step: int) -> bool:
        """Tell whether step ``step`` is sampled for bits that change while nobody writes."""
        return step % self.at_rest_every == 0

    def saves(self, step: int) -> bool:
        """Tell whether the state after step ``step`` is saved."""
        return step % self.save_every == 0 or step == self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is tried. ``repeats`` of every cell with each of ``whens`` (None: one of them, in turn)."""

    repeats: int = 1
    every_when: bool = False
    references: int = 2
    controls: int = 0
    """Further clean steps under each wrapper."""


QUICK: Final = Size()
FULL: Final = Size(repeats=3, every_when=True, references=4)
CONTROL_STEPS: Final = 1000


@dataclass(slots=True)
class _Draw:
    """Chance of one plan, and the numbers that its trials have."""

    chance: random.Random
    ranks: int
    references: int
    made: int = 0
    names: set[str] = field(default_factory=set)

    def number(self) -> int:
        self.made += 1
        return self.made


def make_plan(seed: int, ranks: int, size: Size = QUICK, only: str = "") -> tuple[Trial, ...]:
    """Return the trials, references first. ``only`` keeps those whose name holds it, and what they need."""
    draw = _Draw(random.Random(f"drill {seed}"), ranks, size.references)
    references = tuple(_reference(number, seed) for number in range(size.references))
    others = [*_cells(draw, size), *_own_rows(draw, size), *_controls(seed, size)]
    kept = [trial for trial in others if only in trial.name]
    needed = {trial.reference for trial in kept}
    return (*(r for r in references if not only or r.name in needed or only in r.name), *_seeded(kept, references))


def _reference(number: int, seed: int) -> Trial:
    return Trial(name=f"clean-{number + 1}", row=CONTROL, kind="clean", sort="clean", seed=seed * 100 + number,
                 reloads=number == 0)  # fmt: skip


def _seeded(trials: Iterable[Trial], references: Sequence[Trial]) -> Iterator[Trial]:
    """Give every trial with a reference that one's seed."""
    seeds = {reference.name: reference.seed for reference in references}
    for trial in trials:
        yield replace_seed(trial, seeds[trial.reference]) if trial.reference else trial


def replace_seed(trial: Trial, seed: int) -> Trial:
    """Return the trial with another model, batches and dropout."""
    facts = {name: getattr(trial, name) for name in Trial.__dataclass_fields__}
    return Trial(**{**facts, "seed": seed})


def _cells(draw: _Draw, size: Size) -> Iterator[Trial]:
    """Yield every site with every kind: each ``when``, or one of them in turn."""
    for i, row in enumerate(ROWS):
        for j, kind in enumerate(COLUMNS):
            whens = WHENS if size.every_when else (WHENS[(i + j) % len(WHENS)],)
            for when in whens:
                yield from (_cell(draw, row, kind, when, repeat) for repeat in range(size.repeats))


def _cell(draw: _Draw, row: str, kind: str, when: str, repeat: int) -> Trial:
    site, state = ROWS[row]
    fault = Fault(
        site, kind, draw.chance.randrange(draw.ranks), _step(draw, site, when, repeat),
        permanent=when == "permanent", seed=draw.chance.randrange(2**31), state=state,
        chance=CHANCE if when == "intermittent" else 0.0,
    )  # fmt: skip
    return _fault(draw, row, kind, when, (fault,), layer=draw.chance.randrange(LAYERS))


def _step(draw: _Draw, site: str, when: str, repeat: int) -> int:
    """Choose the step; half of the transient faults in a layer, or at rest, are in a step that is looked at."""
    shape = Trial(name="", row="")
    if when == "intermittent":
        return draw.chance.randrange(2, shape.steps // 2)
    seen = {"at-rest": shape.rests} | dict.fromkeys(LAYER_SITES, shape.audits)
    if when == "transient" and site in seen and draw.chance.random() < 0.5:
        return draw.chance.choice([step for step in range(2, shape.steps + 1) if seen[site](step)])
    return draw.chance.randrange(2, shape.steps)


def _own_rows(draw: _Draw, size: Size) -> Iterator[Trial]:
    """Yield what is no cell of the matrix: data, files on disk, two broken devices."""
    for _ in range(2 * size.repeats):
        for when in ("transient", "permanent"):
            rank, step = draw.chance.randrange(draw.ranks), draw.chance.randrange(2, 20)
            yield _fault(draw, BATCH, "nan", when, (Fault("batch", "nan", rank, step, permanent=when == "permanent"),))
        yield _fault(draw, CHECKPOINT, BYTE, "permanent", (), rot=draw.chance.randrange(2**31), reloads=True)
        if draw.ranks > 2:
            yield _fault(draw, ARBITER, draw.chance.choice(("scale", "mantissa-high", "warp")), "permanent", _two(draw))


def _two(draw: _Draw) -> tuple[Fault, ...]:
    """Return different permanent faults on two devices."""
    ranks = draw.chance.sample(range(draw.ranks), 2)
    kinds = draw.chance.sample(("scale", "mantissa-high", "warp", "sign"), 2)
    step = draw.chance.randrange(2, 20)
    return tuple(
        Fault("gradient", kind, rank, step, permanent=True, seed=draw.chance.randrange(2**31))
        for rank, kind in zip(ranks, kinds, strict=True)
    )


def _fault(draw: _Draw, row: str, kind: str, when: str, faults: tuple[Fault, ...], **facts: Any) -> Trial:
    number = draw.number()
    name = "-".join((f"{number:04}", row, kind, when)).replace(",", "").replace(" ", "-").replace("_", "-")
    reference = f"clean-{1 + number % draw.references}"
    return Trial(name=name, row=row, kind=kind, when=when, faults=faults, reference=reference, **facts)


def _controls(seed: int, size: Size) -> Iterator[Trial]:
    """Yield jobs that are not deterministic, and the further clean steps, in trials of at most so many."""
    yield Trial(name="threads", row=CONTROL, kind="other thread counts", sort="threads", seed=seed * 100 + 71)
    yield Trial(name="unordered", row=CONTROL, kind="unordered reduction", sort="unordered", seed=seed * 100 + 72)
    yield Trial(name="sharded", row=CONTROL, kind="fully_shard", sort="sharded", seed=seed * 100 + 73)
    for number, begin in enumerate(range(0, size.controls, CONTROL_STEPS)):
        steps = min(CONTROL_STEPS, size.controls - begin)
        facts: dict[str, Any] = {"steps": steps, "seed": seed * 100 + 80 + number, "save_every": 250}
        yield Trial(name=f"control-{number + 1}", row=CONTROL, kind="clean", sort="clean", **facts)
        yield Trial(name=f"control-sharded-{number + 1}", row=CONTROL, kind="fully_shard", sort="sharded", **facts)


def plan_data(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return the plan as plain data, for the ranks."""
    return [asdict(trial) for trial in trials]


def read_plan(data: Sequence[Mapping[str, Any]]) -> tuple[Trial, ...]:
    """Return the plan that :func:`plan_data` wrote."""
    return tuple(Trial(**{**row, "faults": tuple(Fault(**fault) for fault in row["faults"])}) for row in data)
