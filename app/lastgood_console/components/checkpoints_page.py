"""Decide what the page of checkpoints says and which rows it lists; draw its row of counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lastgood.state import Checkpoint, FailedSave, RunState, Trust
from lastgood.wording import TRUST_SYMBOLS, date_text, joined, resume_headline, step_text
from lastgood_console.components.checkpoint_table import Save, bytes_text, check_text, parent_text, saves
from lastgood_console.components.decision import sentence
from lastgood_console.components.strip import is_last_good
from lastgood_console.components.tables import NOTHING

TRUSTS: Final[tuple[Trust, ...]] = ("trusted", "unverified", "suspect", "tainted", "missing", "unreadable")
FAILED: Final = "failed"
"""Beside the trusts: the saves that did not happen."""


def headline(state: RunState) -> str:
    """Return the advice."""
    good = state.last_good
    if good.exists:
        return f"Resume {state.run} from {resume_headline(good)}."
    saved = any(state.trust_counts.values())
    return f"Nothing to resume {state.run} from." if saved else f"{state.run} has saved nothing yet."


def consequence(state: RunState) -> str:
    """Say why that one, and how the others stand."""
    good = state.last_good
    if not good.exists:
        return sentence(good.reason.removeprefix("Nothing saved yet. "))  # the headline says that
    which = f"It is the newest {good.trust} checkpoint." if good.trust == "trusted" else sentence(good.reason)
    newer = _newer(state)
    said = [which]
    if newer:
        said.append(f"{newer} newer save{' is' if newer == 1 else 's are'} unverified.")
    bad = state.trust_counts
    others = [f"{bad[t]} {t}" for t in ("suspect", "tainted", "unreadable") if bad[t]]
    if others:
        said.append(f"Do not use: {joined(others)}.")
    return " ".join(said)


def _newer(state: RunState) -> int:
    good = (state.last_good.attempt, state.last_good.step)
    return sum(c.trust == "unverified" and (c.attempt, c.step) > good for c in state.checkpoints)


def counts_html(state: RunState) -> str:
    """Return the row of counts: last good, then one number for each trust. A zero is a number like any other."""
    found = state.trust_counts
    good = step_text(state.last_good.step) if state.last_good.exists else NOTHING
    cells = [("Last good", good), *((trust.capitalize(), step_text(found[trust])) for trust in TRUSTS)]
    inner = "".join(f'<div><span class="lg-caption">{name}</span><b>{number}</b></div>' for name, number in cells)
    return f'<div class="lg-counts">{inner}</div>'


def wanted(state: RunState, trust: str = "") -> list[Save]:
    """Return the saves, newest first; ``trust``: of one trust, or :data:`FAILED`."""
    return [c for c in saves(state) if trust in ("", kind_of(c))]


def kind_of(save: Save) -> str:
    """Return its trust; FAILED for one that did not happen."""
    return save.trust if isinstance(save, Checkpoint) else FAILED


def offered(state: RunState) -> tuple[str, ...]:
    """Return what the list can be cut down to: the trusts that are there."""
    there = {kind_of(c) for c in saves(state)}
    return ("all", *(kind for kind in (*TRUSTS, FAILED) if kind in there))


def plain_rows(found: Sequence[Save], state: RunState) -> list[dict[str, Any]]:
    """Return the rows as plain text, for a table of any length: the word stands before the symbol."""
    return [_plain(c, state) if isinstance(c, Checkpoint) else _plain_failed(c) for c in found]


def _plain(c: Checkpoint, state: RunState) -> dict[str, Any]:
    good = is_last_good(c, state)
    return {
        "Step": c.step,
        "Attempt": c.attempt,
        "Trust": f"{c.trust} {TRUST_SYMBOLS[c.trust]}",
        "Why": ("Last good. " if good else "") + sentence(c.reason),
        "Saved (UTC)": date_text(c.saved_at),
        "Parent": parent_text(c),
        "Replica": check_text(c.checks.get("replica")),
        "Fingerprint": c.fingerprint[:16],
        "Size": bytes_text(c.bytes),
        "Path": c.path,
    }


def _plain_failed(f: FailedSave) -> dict[str, Any]:
    refused = f.reason == "integrity"
    return {
        "Step": f.step,
        "Attempt": f.attempt,
        "Trust": "refused ✗" if refused else "failed –",
        "Why": "A check failed at the save; nothing was written." if refused else sentence(f.reason),
        "Saved (UTC)": date_text(f.at),
        "Parent": NOTHING,
        "Replica": check_text(f.checks.get("replica")),
        "Fingerprint": NOTHING,
        "Size": NOTHING,
        "Path": f.path,
    }
