"""Hold words that try to be more than words, and put them wherever an incident names something of others."""

from __future__ import annotations

from dataclasses import replace

from tests.app.fixtures import states

from lastgood.state import RunState, Unreadable

HEBREW = "\u05e9\u05dc\u05d5\u05dd/\u05e2\u05d5\u05dc\u05dd"
ARABIC = "\u0645\u0633\u0627\u0631"
CHINESE = "\u8def\u5f84/\u7b2c75\u6b65"
OVERRIDE = "step-\u202e05\u202c-dab"


def everywhere(words: str) -> RunState:
    """Return the default story with these words wherever people, paths or nodes are named."""
    state = states.gradient(injections=(), annotations=())
    base = state.incidents[0]
    found = tuple(replace(f, tensor=words, observed=words, expected=words, evidence=({"kind": "x", "text": words},))
                  for f in base.findings)  # fmt: skip
    said = {"text": words, "author": words, "incident": base.id, "reason": words}
    kinds: tuple[tuple[str, dict[str, str]], ...] = (
        ("note", {}), ("action", {"action": "acknowledge"}), ("action", {"action": words}),
    )  # fmt: skip
    notes = tuple(states.event(kind, 1_900 + n, 1, said | more) for n, (kind, more) in enumerate(kinds))
    suspect = replace(base.suspects[0], node=words)
    verdicts = tuple(replace(v, suspects=(suspect,)) for v in base.verdicts)
    resume = replace(states.RESUME, path=words, reason=words)
    about = replace(base, findings=found, actions=notes, suspects=(suspect,), resume=resume, closed_by=words,
                    verdicts=verdicts, reasons_for=(words,), reasons_against=(words,), unknown=(words,))  # fmt: skip
    saves = tuple(replace(s, path=words, reason=words) for s in state.checkpoints)
    unreadable = (Unreadable(words, 1, words),)
    return replace(state, run=words, incidents=(about,), checkpoints=saves, unreadable=unreadable, findings=found)
