"""Compare the replicas: fingerprints of weights, and before saves of optimizer state too.

One MAX all-reduce of ``[d, ~d]`` tells whether all ranks hold the same; only a disagreement gathers. Never buffers:
BatchNorm's differ between ranks by design. Equal fingerprints are strong evidence, not proof.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

from lastgood.comm import World
from lastgood.fingerprint import TensorDigests, canonical_name, digest_tensors
from lastgood.fsdp_groups import named_parameters
from lastgood.verdict import Ruling, majority, rule_replica


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one round found; identical on every rank. ``ruling`` is None when all replicas agree."""

    digests: TensorDigests
    ruling: Ruling | None
    tensor: str | None = None
    observed: int = 0
    expected: int = 0


def compare(world: World, items: Iterable[tuple[str, Tensor]], nodes: Sequence[str], lanes: int = 1) -> Comparison:
    """Compare named tensors between all ranks. Collective."""
    digests = digest_tensors(items, lanes=lanes)
    total = digests.total().cpu()
    folded = fold(total)
    if world.equal(folded):
        return Comparison(digests, None)
    totals = {rank: row[0] for rank, row in enumerate(world.gather_ints([folded]))}
    outcome = majority(totals)
    odd = outcome.odd[0] if outcome.odd else 1
    reference = next(r for r in range(world.size) if totals[r] != totals[odd])
    tensor, observed, expected = first_difference(world, digests, odd, reference)
    ruling = rule_replica(totals, dict(enumerate(nodes)), tensor)
    return Comparison(digests, ruling, tensor, observed, expected)


def weights(module: nn.Module, ignored: Collection[str] = ()) -> Iterator[tuple[str, Tensor]]:
    """Yield canonical name and tensor of every parameter but the ignored ones (canonical names)."""
    for name, parameter in named_parameters(module):
        if canonical_name(name) not in ignored:
            yield canonical_name(name), parameter.detach()


def trained(module: nn.Module) -> Iterator[str]:
    """Yield the canonical name of every parameter that is trained now."""
    return (canonical_name(name) for name, parameter in named_parameters(module) if parameter.requires_grad)


def rewritten(module: nn.Module) -> Iterator[str]:
    """Yield the canonical name of every weight that its layer writes in the forward: an embedding with ``max_norm``."""
    layers = (m for m in module.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.max_norm is not None)
    written = {id(layer.weight) for layer in layers}
    return (canonical_name(name) for name, parameter in module.named_parameters() if id(parameter) in written)


def belongs_to(tensor: str, parameter: str) -> bool:
    """Tell whether a compared tensor is this parameter, or optimizer state of it (see :func:`optimizer_state`)."""
    return tensor.split(":", 1)[-1].split("/", 1)[0] == parameter


def ignored_by(model: nn.Module) -> frozenset[str]:
    """Return the canonical names that ``DistributedDataParallel`` was told to leave alone: each rank has its own."""
    return frozenset(canonical_name(name) for name in getattr(model, "parameters_to_ignore", ()))


def optimizer_state(
    module: nn.Module, optimizers: Sequence[Optimizer], ignored: Collection[str] = ()
) -> Iterator[tuple[str, Tensor]]:
    """Yield ``<parameter>/<state key>`` and tensor of every tensor in the optimizers' state.

    State of a parameter outside the module is named by its place in the optimizer. With several optimizers the name
    starts with ``opt<n>:``.
    """
    names = {id(p): canonical_name(n) for n, p in named_parameters(module)}
    for number, optimizer in enumerate(optimizers):
        prefix = f"opt{number}:" if len(optimizers) > 1 else ""
        position = 0
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = names.get(id(parameter), f"parameter {position}")
                position += 1
                if name in ignored:
                    continue
                for key, value in sorted(optimizer.state.get(parameter, {}).items(), key=lambda kv: str(kv[0])):
                    if isinstance(value, Tensor):
                        yield f"{prefix}{name}/{key}", value.detach()


def fold(total: Tensor) -> int:
    """Fold the lanes into one int64 for the comparison between ranks (an odd factor keeps both lanes' bits)."""
    folded = total[0].clone()
    for lane in total[1:]:
        folded = folded * 0x9E3779B1 + lane
    return int(folded)


def first_difference(world: World, digests: TensorDigests, odd: int, reference: int) -> tuple[str | None, int, int]:
    """Return the first tensor in which two ranks differ, and both fingerprints. Collective."""
    mine = [list(digests.names), digests.values[:, 0].tolist()]
    left = world.broadcast_json(mine, source=odd)
    right = world.broadcast_json(mine, source=reference)
    if left[0] != right[0]:
        return "the set of tensors", len(left[0]), len(right[0])
    for name, a, b in zip(left[0], left[1], right[1], strict=True):
        if a != b:
            return name, a, b
    return None, 0, 0
