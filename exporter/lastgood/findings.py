"""Build the data of findings and verdicts from rulings. Pure: plain data in, plain data out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from lastgood.events import fact_id
from lastgood.state import LastGood, Place
from lastgood.verdict import Ruling

STOPPING = ("confirmed", "attributed")
EXTREMES = 8
MOST_DEVICES = 64
"""A finding on more ranks lists the devices of so many; the attempt's topology has them all."""
PATIENCE = 3
"""Skipped steps in a row after which policy ``stop`` stops."""


def place_data(place: Place) -> dict[str, Any]:
    """Return a place as plain data."""
    return {"rank": place.rank, "node": place.node, "gpu_uuid": place.gpu_uuid, "slot": place.slot}


def finding_data(
    *,
    check: str,
    step: int,
    state_step: int,
    phase: str,
    ranks: Sequence[int],
    places: Sequence[Place],
    contained: bool = False,
    tensor: str | None = None,
    bucket: int | None = None,
    observed: str = "",
    expected: str = "",
    evidence: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return ``FindingData``."""
    return {
        "check": check,
        "step": step,
        "state_step": state_step,
        "phase": phase,
        "contained": contained,
        "ranks": sorted(ranks),
        "devices": [place_data(places[rank]) for rank in sorted(ranks)[:MOST_DEVICES]],
        "tensor": tensor,
        "bucket": bucket,
        "observed": observed,
        "expected": expected,
        "evidence": [dict(item) for item in evidence],
    }


def finding_id(data: Mapping[str, Any]) -> str:
    """Return the id that every rank gives this finding."""
    return fact_id("finding", data["check"], data["step"], data["phase"])


def verdict_data(
    ruling: Ruling, findings: Sequence[Mapping[str, Any]], places: Sequence[Place], action: str
) -> dict[str, Any]:
    """Return ``VerdictData`` without the checkpoint to resume from, which is added when it is known."""
    suspects = [place_data(places[r]) | {"role": "accused"} for r in ruling.accused]
    suspects += [place_data(places[r]) | {"role": "candidate"} for r in ruling.candidates]
    return {
        "findings": [finding_id(f) for f in findings],
        "status": ruling.status,
        "scope": ruling.scope,
        "suspects": suspects,
        "nature": ruling.nature,
        "confidence": ruling.confidence,
        "for": list(ruling.reasons_for),
        "against": list(ruling.reasons_against),
        "resume": None,
        "action": action,
    }


def resume_data(last_good: LastGood) -> dict[str, Any]:
    """Return ``ResumeData``."""
    return {
        "attempt": max(last_good.attempt, 0),
        "step": last_good.step,
        "path": last_good.path,
        "trust": last_good.trust,
        "reason": last_good.reason,
    }


def action_of(ruling: Ruling, check: str, policy: str, skipped_before: int) -> str:
    """Return what the policy does about a ruling: stop, skip or record.

    ``stop`` acts on confirmed, attributed, and undecided whose candidates reproduce themselves. A suspicious or
    cleared non-finite step is skipped; the third in a row stops. Software that disagrees is only recorded.
    """
    if policy == "record" or ruling.status is None:
        return "record"
    if ruling.status in STOPPING or (ruling.status == "undecided" and ruling.stands):
        return policy
    if check == "finite":
        return "stop" if policy == "stop" and skipped_before + 1 >= PATIENCE else "skip"
    return "record"


def peers_evidence(rank: int, first_step: int, norms: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return one rank's local gradient norms against the other ranks', step by step.

    ``norms``: one row per rank, one column per step from ``first_step`` on.
    """
    others = [row for r, row in enumerate(norms) if r != rank]
    columns = [sorted(v for v in column if math.isfinite(v)) for column in zip(*others, strict=True)]
    return {
        "kind": "peers",
        "metric": "grad_norm_local",
        "rank": rank,
        "steps": [first_step + i for i in range(len(norms[rank]))],
        "suspect": [number(v) for v in norms[rank]],
        "median": [number(statistics.median(c)) if c else None for c in columns],
        "p10": [number(quantile(c, 0.1)) if c else None for c in columns],
        "p90": [number(quantile(c, 0.9)) if c else None for c in columns],
    }


def norm_spread(norms: Sequence[float]) -> dict[str, Any]:
    """Return what progress says of the ranks' local gradient norms: p10, p50, p90, and the 8 farthest from p50."""
    finite = sorted(v for v in norms if math.isfinite(v))
    if not finite:
        return {}
    middle = quantile(finite, 0.5)
    far = sorted(range(len(norms)), key=lambda r: -abs(norms[r] - middle) if math.isfinite(norms[r]) else -math.inf)
    return {
        "grad_norm": [number(quantile(finite, share)) for share in (0.1, 0.5, 0.9)],
        "extremes": [[rank, number(norms[rank])] for rank in far[:EXTREMES]],
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile of sorted values, linear between neighbours."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def number(value: float) -> float | str:
    """Return a number that JSON can hold: six digits, or "NaN", "Infinity", "-Infinity"."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(f"{value:.6g}")
