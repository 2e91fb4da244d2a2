"""Rule on numbers that lie outside the spread of a job's own repeats. Pure: no torch, no files, no clock.

A norm never accuses: whatever lies outside, the ruling is *suspicious* and names nobody. The evidence names the pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lastgood.findings import number
from lastgood.spread import Outlier
from lastgood.verdict import AGREED, MOST_TOLD, Ruling, names_of

ONLY_NUMBERS: Final = "The job does not repeat itself, so only loss and norms are compared, and they accuse nobody."


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A micro-batch whose owner and partner came to numbers that the job's spread does not explain.

    ``tensor``: the one farthest outside, or "loss". ``outlier.one`` is the owner's number.
    """

    owner: int
    partner: int
    tensor: str
    outlier: Outlier


def rule_apart(apart: Sequence[Apart], nodes: Mapping[int, str]) -> Ruling:
    """Return the ruling on a calibrated round: nothing, or a suspicion."""
    if not apart:
        return AGREED
    told = [_told(found, nodes) for found in apart[:MOST_TOLD]]
    more = [f"The same holds for {len(apart) - len(told)} more pairs."] if len(apart) > len(told) else []
    return Ruling(
        status="suspicious",
        reasons_for=(*told, *more, *_in_common(apart, nodes)),
        reasons_against=(ONLY_NUMBERS,),
        stands=False,
    )


def _in_common(apart: Sequence[Apart], nodes: Mapping[int, str]) -> Sequence[str]:
    """Say which ranks are part of every pair; nothing of a single pair, or where none is."""
    shared = set.intersection(*({found.owner, found.partner} for found in apart))
    if len(apart) == 1 or not shared:
        return ()
    return (f"All {len(apart)} pairs have {names_of(sorted(shared), nodes)} in common.",)


def _told(found: Apart, nodes: Mapping[int, str]) -> str:
    """Say what holds of a pair without its numbers, so that the next round of the same fault says the same."""
    owner, partner = names_of([found.owner], nodes), names_of([found.partner], nodes)
    return f"On a batch of {owner}, {partner} differs by more than the job's repeats explain."


def text_of(found: Apart, nodes: Mapping[int, str]) -> str:
    """Say what the two sides of a pair came to, and how far apart that is."""
    owner, partner = names_of([found.owner], nodes), names_of([found.partner], nodes)
    outlier = found.outlier
    what = "the loss" if found.tensor == "loss" else f"the gradient norm of {found.tensor}"
    far = f"{_share(outlier.apart)} apart" if math.isfinite(outlier.apart) else "one of them is not finite"
    return (
        f"For {what} {owner} got {number(outlier.one)} and {partner} got {number(outlier.other)} on the same batch: "
        f"{far}, where the job's repeats explain {_share(outlier.limit)}."
    )


def evidence_of(found: Apart, nodes: Mapping[int, str]) -> dict[str, Any]:
    """Return the evidence of one pair as plain data."""
    outlier = found.outlier
    return {
        "kind": "spread",
        "text": text_of(found, nodes),
        "owner": found.owner,
        "partner": found.partner,
        "tensor": found.tensor,
        "owner_value": number(outlier.one),
        "partner_value": number(outlier.other),
        "apart": number(outlier.apart),
        "spread": number(outlier.spread),
        "limit": number(outlier.limit),
    }


def _share(value: float) -> str:
    """Return a share of the larger value as a percentage, two digits."""
    return f"{100 * value:.2g} %"
