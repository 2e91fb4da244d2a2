"""Decide what a wrong part of a sharded reduce, or of a gathered copy, says. Pure, as :mod:`lastgood.verdict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lastgood.verdict import MOST_TOLD, Ruling, accuse, names_of, shared_by_many, symptom, tie


def rule_scattered(holders: Sequence[int], nodes: Mapping[int, str], bucket: int) -> Ruling:
    """Rule on a reduce-scatter that lost or made a value; ``holders``: the ranks whose part is wrong.

    Each part is held by one rank and made by all of its group, so the holder is where it shows, not who did it.
    """
    lost = f"In bucket {bucket} the sum of the ranks' checksums is not the checksum of their sum."
    part = f"The part of {names_of(holders, nodes)} is wrong." if holders else ""
    against = "Every rank of the group adds to a part before one of them holds it, so no rank stands out."
    reasons = tuple(text for text in (lost, part) if text)
    return Ruling(status="confirmed", confidence="high", reasons_for=reasons, reasons_against=(against,))


def rule_averaged(odd: Sequence[int], members: Sequence[int], nodes: Mapping[int, str], bucket: int) -> Ruling:
    """Rule on an average between the ranks that hold the same part; ``odd``: those whose result is another one."""
    lost = f"In bucket {bucket} the mean of the replicas' checksums is not the checksum of their mean."
    if not odd:
        same = f"{names_of(members, nodes)} hold the same wrong part, so none of them stands out."
        return Ruling(status="confirmed", confidence="high", reasons_for=(lost,), reasons_against=(same,))
    differs = f"The part of {names_of(odd, nodes)} differs from that of the others that hold it."
    if 2 * len(odd) >= len(members):
        return tie(members, nodes, (lost, differs, "No result has a majority."))
    return accuse(odd, nodes, reasons_for=(lost, differs))


def rule_gathered(odd: Sequence[int], asked: Sequence[int], nodes: Mapping[int, str], tensor: str) -> Ruling:
    """Rule on gathered weights that are not those of the shards; ``odd``: the ranks with such a copy, of ``asked``.

    What the holders sent was digested before it left, so the right value is known and no majority is needed. Copies
    that are wrong on several nodes came wrong from somewhere else.
    """
    ranks = tuple(sorted(odd))
    wrong = f"The weights of {tensor} that {names_of(ranks, nodes)} gathered are not those that the shards hold."
    others = f"The copies of the other {len(asked) - len(ranks)} ranks are."
    link = "A link into it would look the same."
    if len({nodes.get(rank) for rank in ranks}) == 1 and len(ranks) < len(asked):
        return accuse(ranks, nodes, reasons_for=(wrong, others), reasons_against=(link,))
    if shared_by_many(ranks, nodes):
        return symptom(ranks, nodes, reasons_for=(wrong,))
    passed_on = "It came so from a rank that sent it or passed it on, and which one is not known: no rank stands out."
    return Ruling(status="confirmed", confidence="high", reasons_for=(wrong,), reasons_against=(passed_on,))


def rule_parts(rulings: Sequence[Ruling], nodes: Mapping[int, str]) -> Ruling:
    """Join the rulings on several parts of a state, each compared between the ranks that hold it."""
    accused = sorted({rank for ruling in rulings for rank in ruling.accused})
    if len(rulings) == 1 or not accused:
        return next((r for r in rulings if r.status == "undecided"), rulings[0])
    told = tuple(text for r in rulings[:MOST_TOLD] for text in r.reasons_for if r.accused)
    if shared_by_many(accused, nodes):
        return symptom(accused, nodes, reasons_for=told)
    return accuse(accused, nodes, reasons_for=told)
