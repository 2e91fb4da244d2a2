"""Decide what findings say. Pure: no torch, no files, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lastgood.events import Confidence, Nature, Scope, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The outcome of a decision, before names and times are added to it.

    ``accused`` and ``candidates`` are ranks. ``status`` is None when nothing is wrong (all agree) and nobody needs to
    be told. ``deterministic`` is False when the job does not repeat itself: then nobody is accused and replay goes
    *not run* with that as the reason. ``stands`` tells whether the evidence reproduces itself (an undecided case
    whose candidates reproduce themselves still stops under policy ``stop``).
    """

    status: Status | None
    scope: Scope = "job"
    accused: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    nature: Nature = "unknown"
    confidence: Confidence = "low"
    reasons_for: tuple[str, ...] = ()
    reasons_against: tuple[str, ...] = ()
    deterministic: bool = True
    stands: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """One pair of a replay round that disagreed: the owner of a batch, its partner, and the arbiter.

    Values are gradient fingerprints of the owner's batch (None: not run). ``arbiter`` is a rank on a third node that is
    not party to another dispute. ``second_batch_odd``: on a second batch the owner again differed from the others
    (None: not tried). ``eager_agrees``: run without compilation, owner and partner agree. ``eager_splits``: without
    compilation the owner still differs from partner and arbiter. ``same_environment``: all three share the
    environment key. For a round after a non-finite step the values are 1 (non-finite) and 0 (finite).
    """

    owner: int
    partner: int
    arbiter: int | None
    owner_first: int
    owner_second: int | None
    partner_first: int
    partner_second: int | None
    arbiter_first: int | None
    second_batch_odd: bool | None = None
    eager_agrees: bool | None = None
    eager_splits: bool | None = None
    same_environment: bool = True


@dataclass(frozen=True, slots=True)
class Majority:
    """Outcome of comparing replicas: which ranks are odd, and what the majority holds."""

    result: Literal["passed", "attributed", "undecided", "software"]
    odd: tuple[int, ...]  # minority; or every candidate when undecided
    expected: int | None


def majority(digests: Mapping[int, int]) -> Majority:
    """Compare the replicas' fingerprints (rank -> fingerprint): strict majority, or undecided."""
    raise NotImplementedError


def rule_replica(digests: Mapping[int, int], nodes: Mapping[int, str], tensor: str | None = None) -> Ruling:
    """Rule on a replica round; ``nodes`` maps every rank to its node. ``tensor`` names the first that differs."""
    raise NotImplementedError


def arbitrate(disputes: Sequence[Dispute], nodes: Mapping[int, str]) -> Ruling:
    """Rule on a replay round (the arbitration table of docs/checks.md, first match). ``nodes``: rank -> node."""
    raise NotImplementedError


def confirmed_ranks(pairs: Mapping[int, int], disputes: Sequence[Dispute], ruling: Ruling) -> frozenset[int]:
    """Return the ranks that pass a failed replay round.

    ``pairs`` maps each owner to the partner that replayed its batch. A rank passes iff the arbitration does not name
    it and its own batch was confirmed on another node.
    """
    raise NotImplementedError


def rule_finite(nonfinite: Mapping[int, str], disputes: Sequence[Dispute], nodes: Mapping[int, str]) -> Ruling:
    """Rule on a non-finite step. ``nonfinite``: rank -> stage (loss, local); ``disputes`` of the immediate replay."""
    raise NotImplementedError


def rule_conservation(odd: Sequence[int], world_size: int, nodes: Mapping[int, str], bucket: int) -> Ruling:
    """Rule on a reduce that lost or made a value; ``odd``: ranks whose own result differs from the others'."""
    raise NotImplementedError
