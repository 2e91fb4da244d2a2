"""Say what a pair of ranks that disagree in a replay came to, as the evidence of a finding."""

from __future__ import annotations

from lastgood.fingerprint import hex64
from lastgood.verdict import Dispute


def pair_evidence(dispute: Dispute) -> dict[str, object]:
    """Return one piece of evidence; what did not run is None."""
    side = "" if dispute.arbiter is None else f" Rank {dispute.arbiter} was asked."
    runs = ("owner_first", "owner_second", "partner_first", "partner_second", "arbiter_first")
    found: dict[str, int | None] = {run: getattr(dispute, run) for run in runs}
    return {
        "kind": "replay",
        "text": f"Rank {dispute.partner} ran a batch of rank {dispute.owner} and got another gradient.{side}",
        "owner": dispute.owner,
        "partner": dispute.partner,
        "arbiter": dispute.arbiter,
        **{run: None if value is None else hex64(value) for run, value in found.items()},
        "second_batch_odd": dispute.second_batch_odd,
    }
