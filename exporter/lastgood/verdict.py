"""Decide what findings say. Pure: no torch, no files, no clock.

Every rank calls these functions with the same evidence and gets the same ruling, so nothing has to be voted on. They
must serve jobs from two nodes up, compiled or not, deterministic or not, and they accuse only on exact evidence: the
same batch gives other bits on another node, replicas differ in one bit, a result differs from the others'. A norm, a
spike or a temperature never reaches this module.

Beyond the arbitration table (docs/checks.md), two of its rows are read with care:

- A second run that gives the other side's value settles a pair whichever side it is made on, with two nodes too.
- Evidence that accuses devices of several nodes in one replay round accuses nobody: two kinds of node in one job
  look exactly like that, and two broken nodes in one round do not happen before one of them is found.

A symptom that many ranks share accuses none of them: one broken device does not make 100 others differ alike, but what
they have in common does. Such evidence is confirmed, counted, and names nobody (:func:`shared_by_many`).

Not covered: who stops and who goes on (policy), which steps are affected (:mod:`lastgood.windows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

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

    Values are gradient fingerprints of the owner's batch (None: not run). ``arbiter`` is a rank on a third node that
    is party to no dispute with anybody else (see :func:`impartial`). ``second_batch_odd``: on a second batch the owner
    again differed from the others (None: not tried). ``eager_agrees``: run without compilation, owner and partner
    agree. ``eager_splits``: without compilation the owner still differs from partner and arbiter. ``recompiled``: owner
    or partner has compiled some code more than once, so that the two may have run different kernels.
    ``same_environment``: all three share the environment key. For a round after a non-finite step the values are 1
    (non-finite) and 0 (finite).
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
    recompiled: bool = False
    same_environment: bool = True


@dataclass(frozen=True, slots=True)
class Majority:
    """Outcome of comparing replicas: which ranks are odd, and what the majority holds."""

    result: Literal["passed", "attributed", "undecided", "software"]
    odd: tuple[int, ...]  # minority; or every candidate when undecided
    expected: int | None


AGREED: Final = Ruling(status=None, confidence="exact", stands=False)
"""Nothing disagreed, so there is nothing to say."""

MOST_NAMED: Final = 8
"""So many ranks can be looked at one by one: the GPUs of a usual node."""
MOST_TOLD: Final = 3
"""Of ranks with the same evidence so many are told one by one, the others are counted."""

ADVICE: Final = "Make the job deterministic (torch.use_deterministic_algorithms), or switch replay off."


def majority(digests: Mapping[int, int]) -> Majority:
    """Compare the replicas' fingerprints (rank -> fingerprint): strict majority, or undecided.

    All different with three or more replicas is software: one broken GPU leaves the others equal.
    """
    counts = Counter(digests.values())
    if len(counts) <= 1:
        return Majority("passed", (), next(iter(counts), None))
    value, votes = counts.most_common(1)[0]
    if 2 * votes > len(digests):
        return Majority("attributed", tuple(sorted(r for r, d in digests.items() if d != value)), value)
    if votes == 1 and len(digests) >= 3:
        return Majority("software", (), None)
    return Majority("undecided", tuple(sorted(digests)), None)


def rule_replica(digests: Mapping[int, int], nodes: Mapping[int, str], tensor: str | None = None) -> Ruling:
    """Rule on a replica round; ``nodes`` maps every rank to its node. ``tensor`` names the first that differs.

    Replicas that all differ are confirmed and nobody is accused: the weights have come apart, whoever did it.
    """
    outcome = majority(digests)
    where = f"The first tensor that differs is {tensor}." if tensor else ""
    if outcome.result == "passed":
        return AGREED
    if outcome.result == "attributed":
        same = len(digests) - len(outcome.odd)
        holds = f"{same} of {len(digests)} replicas hold the same bits; {names_of(outcome.odd, nodes)} held others."
        if shared_by_many(outcome.odd, nodes):
            return symptom(outcome.odd, nodes, reasons_for=_sentences(holds, where))
        return accuse(outcome.odd, nodes, reasons_for=_sentences(holds, where))
    if outcome.result == "software":
        reason = f"All {len(digests)} replicas differ from one another."
        against = "One broken GPU would leave the others equal: look for a parameter unused on some ranks."
        return Ruling(
            status="confirmed",
            confidence="high",
            reasons_for=_sentences(reason, where),
            reasons_against=(against,),
        )
    reason = f"{len(digests)} replicas hold {len(set(digests.values()))} different states and none has a majority."
    return tie(outcome.odd, nodes, _sentences(reason, where))


def rule_unreduced(tensor: str) -> Ruling:
    """Rule on replicas that differ in a parameter that is trained and never averaged: they come apart by themselves."""
    reason = f"{tensor} was not trained when the model was wrapped, so its gradients are not averaged."
    against = "Every rank trains it alone, and healthy ones differ: wrap the model again when what is trained changes."
    return Ruling(status="confirmed", confidence="high", reasons_for=(reason,), reasons_against=(against,))


def rule_rewritten(tensor: str) -> Ruling:
    """Rule on replicas that differ in a weight that the forward itself writes, on each rank by its own batch."""
    reason = f"{tensor} belongs to an embedding with max_norm, whose forward rescales the rows that a batch looks up."
    against = "Every rank has its own batch, so healthy ones differ: clip these rows alike on all, after the step."
    return Ruling(status="confirmed", confidence="high", reasons_for=(reason,), reasons_against=(against,))


def arbitrate(disputes: Sequence[Dispute], nodes: Mapping[int, str]) -> Ruling:
    """Rule on a replay round (the arbitration table of docs/checks.md, first match). ``nodes``: rank -> node.

    What one broken node cannot explain is decided before any pair is looked at: in a job that does not repeat
    itself, or that mixes two kinds of node, single pairs look like perfect evidence. A pair that may have run
    different kernels and agrees without compilation does not disagree.
    """
    odd = sorted(
        (d for d in disputes if d.owner_first != d.partner_first and not (d.recompiled and d.eager_agrees)),
        key=lambda d: (d.owner, d.partner),
    )
    if not odd:
        return AGREED
    why = _not_deterministic(odd, nodes)
    if why:
        return Ruling(status=None, reasons_for=(why,), reasons_against=(ADVICE,), deterministic=False, stands=False)
    blamed = {d: blame for d in odd if (blame := _blame(d, odd, nodes)) is not None}
    if len({nodes.get(b.rank) for b in blamed.values()}) == 1:
        return _attribute(odd, blamed, nodes)
    if blamed:
        return _undecided(odd, nodes, "The pairs accuse devices of different nodes.")
    unsettled = [d for d in odd if not d.eager_agrees]
    if not unsettled:
        reason = "Without compilation owner and partner agree: the compiled kernels differ, not the hardware."
        return Ruling(status="cleared", confidence="exact", reasons_for=(reason,), stands=False)
    return _undecided(unsettled, nodes, "")


def confirmed_ranks(pairs: Mapping[int, int], disputes: Sequence[Dispute], ruling: Ruling) -> frozenset[int]:
    """Return the ranks that pass a failed replay round.

    ``pairs`` maps each owner to the partner that replayed its batch. A rank passes iff the arbitration does not name
    it and its own batch was confirmed on another node.
    """
    if not ruling.deterministic:
        return frozenset()
    named = {*ruling.accused, *ruling.candidates}
    refuted = {d.owner for d in disputes if not _confirmed(d)}
    return frozenset(rank for rank in pairs if rank not in named and rank not in refuted)


def rule_finite(nonfinite: Mapping[int, str], disputes: Sequence[Dispute], nodes: Mapping[int, str]) -> Ruling:
    """Rule on a non-finite step. ``nonfinite``: rank -> stage (loss, local); ``disputes`` of the immediate replay.

    Each rank stands on its own evidence: non-finite on another node too is data or software; finite there is the
    device; not replayed leaves it suspicious. ``nonfinite`` is empty when only the reduced gradient was not finite.
    """
    if not nonfinite:
        reason = "The reduced gradient is not finite although every local gradient is."
        return Ruling(status="suspicious", reasons_for=(reason,), stands=False)
    by_owner = {d.owner: d for d in disputes}
    rulings = [_rule_nonfinite(rank, nonfinite[rank], by_owner.get(rank), nodes) for rank in sorted(nonfinite)]
    return _strongest(rulings, nodes, _everybody(nonfinite, nodes))


def _everybody(nonfinite: Mapping[int, str], nodes: Mapping[int, str]) -> str:
    """Say that no rank stands out, when none does."""
    if len(nonfinite) <= 2 or len(nonfinite) < len(nodes):
        return ""
    return f"All {len(nonfinite)} ranks were not finite in this step: what they share made it, and no rank stands out."


def rule_conservation(odd: Sequence[int], world_size: int, nodes: Mapping[int, str], bucket: int) -> Ruling:
    """Rule on a reduce that lost or made a value; ``odd``: ranks whose own result differs from the others'."""
    lost = f"In bucket {bucket} the sum of the ranks' checksums is not the checksum of their sum."
    if not odd:
        same = "Every rank holds the same wrong result, so no rank stands out."
        return Ruling(status="confirmed", confidence="high", reasons_for=(lost,), reasons_against=(same,))
    ranks = tuple(sorted(set(odd)))
    differs = f"The result of {names_of(ranks, nodes)} differs from the others'."
    if 2 * len(ranks) >= world_size:
        return tie(range(world_size), nodes, (lost, differs, "No result has a majority."))
    if shared_by_many(ranks, nodes):
        return symptom(ranks, nodes, reasons_for=(lost, differs))
    return accuse(ranks, nodes, reasons_for=(lost, differs))


def rule_at_rest(odd: Sequence[int], nodes: Mapping[int, str], tensor: str) -> Ruling:
    """Rule on bits that changed while no optimizer wrote. ``odd``: the ranks where they did; ``nodes``: of all ranks.

    One rank among others that run the same code is its device. The only rank of a job, or several at once, may as well
    be code that writes past autograd's version counter.
    """
    where = f"Bits of {tensor} changed between the start of a step's forward and the end of its backward."
    silent = "Nothing recorded a write: its version counter and its address are the same."
    if len(odd) == 1 and len(nodes) > 1:
        others = f"The same look on {len(nodes) - 1} other ranks found every bit in its place."
        code = "Code that writes through .data on this rank alone would look the same."
        return accuse(odd, nodes, reasons_for=(where, silent, others), reasons_against=(code,))
    code = "Code that writes weights through .data, or past torch, looks the same: look for it first."
    if len(odd) > 1:
        where = f"{where} It did so on {len(odd)} ranks at once."
    return Ruling(status="suspicious", reasons_for=(where, silent), reasons_against=(code,), stands=False)


# --- replay: one pair ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Blame:
    """What one pair says by itself: the rank that was wrong, how, and why we say so."""

    rank: int
    nature: Nature
    reasons_for: tuple[str, ...]
    reasons_against: tuple[str, ...] = ()


def _blame(d: Dispute, odd: Sequence[Dispute], nodes: Mapping[int, str]) -> _Blame | None:
    """Apply the first three rows of the table to one pair; None when none of them holds.

    A second run that gives the other's value settles a pair by itself, on whichever side it happens and with two
    nodes as well. Everything else needs a third node in the same environment, and compiled code that is not to blame.
    """
    if d.owner_second not in (None, d.owner_first) and d.owner_second == d.partner_first:
        return _self_contradiction(d.owner, d.partner, nodes)
    if d.partner_second == d.owner_first and d.owner_second in (None, d.owner_first) and _backs_owner(d, odd, nodes):
        return _self_contradiction(d.partner, d.owner, nodes)
    arbiter = _arbiter(d, odd, nodes)
    if arbiter is None or not d.same_environment or d.eager_agrees:
        return None
    if arbiter == d.partner_first and d.owner_second == d.owner_first and _odd_again(d, odd):
        return _outvoted(d, d.owner, d.partner, "persistent", nodes)
    if arbiter == d.owner_first:
        nature: Nature = "persistent" if d.partner_second == d.partner_first else "unknown"
        return _outvoted(d, d.partner, d.owner, nature, nodes)
    return None


def _backs_owner(d: Dispute, odd: Sequence[Dispute], nodes: Mapping[int, str]) -> bool:
    """Tell whether the owner's value stands: it came back on the third node, or on the owner itself."""
    arbiter = _arbiter(d, odd, nodes)
    return arbiter == d.owner_first or (arbiter is None and d.owner_second == d.owner_first)


def _arbiter(d: Dispute, odd: Sequence[Dispute], nodes: Mapping[int, str]) -> int | None:
    """Return the arbiter's value if it may judge: on a third node, and impartial."""
    if d.arbiter is None or nodes.get(d.arbiter) in (nodes.get(d.owner), nodes.get(d.partner)):
        return None
    return d.arbiter_first if impartial(d.arbiter, (d.owner, d.partner), [(o.owner, o.partner) for o in odd]) else None


def impartial(rank: int, pair: tuple[int, int], disputes: Iterable[tuple[int, int]]) -> bool:
    """Tell whether a rank may judge a pair: it is party to no dispute with anybody else.

    A dispute with one of the two does not disqualify it: with three ranks on three nodes the broken one disputes with
    both others, and two nodes that come to the same bits still outvote the third.
    """
    return all(set(pair) & set(other) for other in disputes if rank in other)


def _odd_again(d: Dispute, odd: Sequence[Dispute]) -> bool:
    """Tell whether the owner is odd on a second batch, or still odd without compilation."""
    again = d.second_batch_odd
    if again is None:
        again = any(d.owner in (o.owner, o.partner) for o in odd if o is not d)
    return bool(again or d.eager_splits)


def _self_contradiction(rank: int, other: int, nodes: Mapping[int, str]) -> _Blame:
    reason = f"{_sentence(_name(rank, nodes))} gave another value at its second run: that of {_name(other, nodes)}."
    return _Blame(rank, "transient", (reason,))


def _outvoted(d: Dispute, rank: int, other: int, nature: Nature, nodes: Mapping[int, str]) -> _Blame:
    assert d.arbiter is not None
    reasons = (
        f"{_sentence(_name(other, nodes))} disagreed with {_name(rank, nodes)} on a batch of rank {d.owner}.",
        f"{_sentence(_name(d.arbiter, nodes))} settled it and sided with rank {other}.",
    )
    against = (f"Rank {rank} agreed with its own second run.",) if nature == "persistent" else ()
    return _Blame(rank, nature, reasons, against)


# --- replay: the whole round -----------------------------------------------------------------------------------------


def _not_deterministic(odd: Sequence[Dispute], nodes: Mapping[int, str]) -> str:
    """Say why one broken node cannot explain the round, or return an empty string."""
    pairs = [{nodes.get(d.owner), nodes.get(d.partner)} for d in odd]
    if not set.intersection(*pairs):
        return f"No single node is part of all {len(odd)} pairs that disagreed."
    changed = {d.owner for d in odd if d.owner_second not in (None, d.owner_first)}
    changed |= {d.partner for d in odd if d.partner_second not in (None, d.partner_first)}
    if len({nodes.get(rank) for rank in changed}) >= 2:
        return f"{_sentence(names_of(sorted(changed), nodes))} do not reproduce their own results."
    return ""


def _attribute(odd: Sequence[Dispute], blamed: Mapping[Dispute, _Blame], nodes: Mapping[int, str]) -> Ruling:
    """Accuse the blamed ranks. Pairs that none of them is part of leave their ranks as candidates."""
    accused = {b.rank for b in blamed.values()}
    natures = {b.nature for b in blamed.values()}
    open_pairs = [d for d in odd if not accused & {d.owner, d.partner} and not d.eager_agrees]
    against = [f"The pair rank {d.owner} and rank {d.partner} is not settled." for d in open_pairs]
    nature: Nature = "persistent" if "persistent" in natures else natures.pop() if len(natures) == 1 else "unknown"
    agreeing = len(odd) - len(open_pairs)
    return accuse(
        sorted(accused),
        nodes,
        nature=nature,
        candidates=tuple(sorted({r for d in open_pairs for r in (d.owner, d.partner)})),
        reasons_for=_sentences(
            *(s for b in blamed.values() for s in b.reasons_for),
            f"{agreeing} of {len(odd)} pairs that disagreed say the same." if len(odd) > 1 else "",
        ),
        reasons_against=_sentences(*(s for b in blamed.values() for s in b.reasons_against), *against),
    )


def _undecided(odd: Sequence[Dispute], nodes: Mapping[int, str], why: str) -> Ruling:
    """Name both sides of every pair that could not be settled."""
    ranks = sorted({r for d in odd for r in (d.owner, d.partner)})
    reasons = [f"{_sentence(_name(d.partner, nodes))} disagreed with {_name(d.owner, nodes)}." for d in odd]
    against = [_why_unsettled(d, odd, nodes) for d in odd]
    stands = any(d.owner_second == d.owner_first and d.partner_second in (None, d.partner_first) for d in odd)
    return _suspend(
        ranks,
        reasons_for=_sentences(*reasons),
        reasons_against=_sentences(why, *against),
        stands=stands,
    )


def _why_unsettled(d: Dispute, odd: Sequence[Dispute], nodes: Mapping[int, str]) -> str:
    arbiter = _arbiter(d, odd, nodes)
    if not d.same_environment:
        return "The nodes do not share an environment, so healthy ones may disagree."
    if arbiter is None:
        one, other = sorted((d.owner, d.partner))  # each is the other's partner in turn: that is one sentence
        return f"No third node could settle between rank {one} and rank {other}."
    if arbiter not in (d.owner_first, d.partner_first):
        return f"{_sentence(_name(d.arbiter or 0, nodes))} was asked to settle it and agreed with neither."
    return f"Rank {d.owner} was odd on one batch only."


def _confirmed(d: Dispute) -> bool:
    """Tell whether another node came to the owner's value in the end."""
    return d.owner_first in (d.partner_first, d.partner_second, d.arbiter_first)


# --- finite: one rank ------------------------------------------------------------------------------------------------


def _rule_nonfinite(rank: int, stage: str, d: Dispute | None, nodes: Mapping[int, str]) -> Ruling:
    who, what = _name(rank, nodes), "loss" if stage == "loss" else "local gradient"
    if d is None:
        reason = f"The {what} of {who} was not finite; no replay of its batch was possible."
        return Ruling(status="suspicious", reasons_for=(reason,), stands=False)
    if d.partner_first or d.arbiter_first:
        reason = f"The {what} of {who} was not finite, and the same batch is not finite on another node either."
        return Ruling(status="cleared", confidence="exact", reasons_for=(reason,), stands=False)
    return _accuse_nonfinite(rank, what, d, nodes)


def _accuse_nonfinite(rank: int, what: str, d: Dispute, nodes: Mapping[int, str]) -> Ruling:
    nature: Nature = "unknown" if d.owner_second is None else "persistent" if d.owner_second else "transient"
    reasons = (
        f"The {what} of {_name(rank, nodes)} was not finite.",
        f"The same batch is finite on {_name(d.partner, nodes)}.",
    )
    if nature != "transient" and not d.same_environment:
        against = ("The nodes do not share an environment, so healthy ones may disagree.",)
        return _suspend((rank, d.partner), reasons_for=reasons, reasons_against=against)
    own = {"persistent": "was not finite again", "transient": "is finite too", "unknown": "was not made"}[nature]
    return accuse((rank,), nodes, nature=nature, reasons_for=(*reasons, f"Its own second run {own}."))


def _strongest(rulings: Sequence[Ruling], nodes: Mapping[int, str], everybody: str) -> Ruling:
    """Join the rulings on single ranks: accused, else candidates, else suspicious; cleared only if all are.

    ``everybody`` is what to say first when no rank stands out.
    """
    order: tuple[Status, ...] = ("attributed", "undecided", "suspicious", "cleared")
    status = next(s for s in order if any(r.status == s for r in rulings))
    accused = sorted({rank for r in rulings for rank in r.accused})
    candidates = sorted({rank for r in rulings for rank in r.candidates} - set(accused))
    deciding = [r for r in rulings if r.status == status]
    others = [r for r in rulings if r.status != status]
    if shared_by_many([*accused, *candidates], nodes):
        return symptom([*accused, *candidates], nodes, reasons_for=_sentences(everybody, *_told(deciding)))
    natures = {r.nature for r in deciding}
    return Ruling(
        status=status,
        scope="gpu" if status == "undecided" else scope_of(accused, nodes),
        accused=tuple(accused),
        candidates=tuple(candidates),
        nature=natures.pop() if len(natures) == 1 else "unknown",
        confidence=deciding[0].confidence,
        reasons_for=_sentences("" if accused or candidates else everybody, *_told(deciding)),
        reasons_against=_sentences(*(s for r in deciding[:MOST_TOLD] for s in r.reasons_against), *_told(others)),
        stands=any(r.stands for r in deciding),
    )


def _told(rulings: Sequence[Ruling]) -> tuple[str, ...]:
    """Return what speaks for each ruling, of many of them for the first few and how many more there are."""
    shown = rulings if len(rulings) <= MOST_TOLD + 1 else rulings[:MOST_TOLD]
    more = len(rulings) - len(shown)
    return (*(s for r in shown for s in r.reasons_for), *([f"The same holds for {more} more ranks."] if more else []))


# --- what all rulings share ------------------------------------------------------------------------------------------


def scope_of(ranks: Sequence[int], nodes: Mapping[int, str]) -> Scope:
    """Return how wide an accusation is: nobody, one GPU, several of one node, several of several nodes."""
    if len(ranks) <= 1:
        return "gpu" if ranks else "job"
    return "node" if len({nodes.get(rank) for rank in ranks}) == 1 else "group"


def accuse(
    ranks: Sequence[int],
    nodes: Mapping[int, str],
    *,
    reasons_for: tuple[str, ...],
    reasons_against: tuple[str, ...] = (),
    nature: Nature = "unknown",
    candidates: tuple[int, ...] = (),
) -> Ruling:
    """Name the ranks that exact evidence stands against."""
    return Ruling(
        status="attributed",
        scope=scope_of(ranks, nodes),
        accused=tuple(ranks),
        candidates=candidates,
        nature=nature,
        confidence="exact",
        reasons_for=reasons_for,
        reasons_against=reasons_against,
    )


def shared_by_many(ranks: Sequence[int], nodes: Mapping[int, str]) -> bool:
    """Tell whether evidence is a symptom of the job: on more ranks than one looks at, and on more than two nodes."""
    return len(ranks) > MOST_NAMED and len({nodes.get(rank) for rank in ranks}) > 2


def symptom(ranks: Sequence[int], nodes: Mapping[int, str], *, reasons_for: tuple[str, ...]) -> Ruling:
    """Confirm what many ranks share, and name none of them."""
    places = len({nodes.get(rank) for rank in ranks})
    shared = f"{len(ranks)} ranks of {places} nodes share it: look at what they have in common, not at one of them."
    return Ruling(
        status="confirmed",
        confidence="high",
        reasons_for=reasons_for,
        reasons_against=(shared,),
    )


def tie(ranks: Sequence[int], nodes: Mapping[int, str], reasons: tuple[str, ...]) -> Ruling:
    """Rule where no side has a majority: few ranks are candidates, many are a symptom."""
    if shared_by_many(ranks, nodes):
        return symptom(ranks, nodes, reasons_for=reasons)
    return _suspend(ranks, reasons_for=reasons)


def _suspend(
    ranks: Sequence[int],
    *,
    reasons_for: tuple[str, ...],
    reasons_against: tuple[str, ...] = (),
    stands: bool = True,
) -> Ruling:
    """Name candidates without deciding between them: it is one GPU, and we cannot tell which."""
    return Ruling(
        status="undecided",
        scope="gpu",
        candidates=tuple(sorted(ranks)),
        reasons_for=reasons_for,
        reasons_against=reasons_against,
        stands=stands,
    )


def _name(rank: int, nodes: Mapping[int, str]) -> str:
    return f"rank {rank} ({nodes[rank]})" if rank in nodes else f"rank {rank}"


def names_of(ranks: Sequence[int], nodes: Mapping[int, str]) -> str:
    """Name up to three ranks; more would not be read."""
    shown = [_name(rank, nodes) for rank in ranks[:3]]
    if len(ranks) > 3:
        shown.append(f"{len(ranks) - 3} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _sentences(*texts: str) -> tuple[str, ...]:
    """Drop empty sentences and repetitions, keep the order."""
    return tuple(dict.fromkeys(text for text in texts if text))
