"""Say in plain words what an incident means: the one place that terminal, console, report and alerts take them from.

A tired person reads the first sentence and acts on it. So a headline is subject, verb, steps, full stop, and holds
nothing that the evidence does not carry: only an attributed device did something, a candidate is joined with "or",
and a wrong value that no rank can be named for has no subject. Steps are plain digits below 10 000 and grouped with
U+202F above; windows are half-open; a device without a GPU is named by its slot.

Pure: no files, no clock. Not covered: where the words stand and which colour they have.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from lastgood.state import FAKE_PREFIX, NOT_IN_METRICS, Cost, Finding, Incident, LastGood, Place, Window

TRUST_SYMBOLS: Final = {
    "trusted": "✓",
    "unverified": "?",
    "suspect": "!",
    "tainted": "✗",
    "missing": "–",
    "unreadable": "/",
}
RESULT_SYMBOLS: Final = {"passed": "✓", "failed": "◆", "not_run": "–"}
RESULT_WORDS: Final = {"passed": "passed", "failed": "failed", "not_run": "not run"}
STATUS_SYMBOLS: Final = {"suspicious": "◇", "confirmed": "◈", "attributed": "◆", "undecided": "◇", "cleared": "○✓"}
WINDOW_SYMBOL: Final = "▒"
NOT_NEEDED: Final = "not needed"
NOTHING_KNOWN: Final = "nothing known"
TRUSTED_MEANS: Final = "Trusted means audited on both sides, not proven."

_NARROW_SPACE: Final = "\u202f"
_MOST_NAMED: Final = 4
MOST_RANKS: Final = 16
"""So many ranks are listed: those of two usual nodes."""
"""More candidates than this are counted instead of named."""


# numbers, times, places


def step_text(step: int) -> str:
    """Return a step for people: plain digits below 10 000, groups of three with a narrow no-break space above."""
    return str(step) if abs(step) < 10_000 else f"{step:,}".replace(",", _NARROW_SPACE)


def steps_text(count: int) -> str:
    """Return how many steps, as ``1 step`` or ``50 steps``."""
    return f"{step_text(count)} {'step' if count == 1 else 'steps'}"


def age_text(seconds: float) -> str:
    """Return an age in its largest unit, as ``4 s``, ``14 min``, ``3 h``, ``2 d``."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if whole >= size * (2 if unit == "d" else 1):
            return f"{whole // size} {unit}"
    return f"{whole} s"


def duration_text(seconds: float) -> str:
    """Return a duration with two units, as ``4 min 10 s``; below ten seconds with one decimal."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    parts = ((whole // 3_600, "h"), (whole % 3_600 // 60, "min"), (whole % 60, "s"))
    shown = [f"{n} {unit}" for n, unit in parts if n]
    return " ".join(shown[:2])


def moment(time: str) -> datetime:
    """Return a journaled time (RFC 3339, UTC) as a datetime."""
    return datetime.fromisoformat(time.replace("Z", "+00:00"))


def clock_text(time: str | None) -> str:
    """Return the clock of a journaled time, ``02:58:02``; "–" when there is none."""
    return time[11:19] if time else "–"


def dated_clock(time: str, other: str) -> str:
    """Return the clock of a journaled time, with its day (``29 Nov 03:12:44``) unless ``other`` is a time of that day.

    An empty ``other`` is a time of no day.
    """
    return clock_text(time) if time[:10] == other[:10] else f"{moment(time):%d %b} {clock_text(time)}"


def date_text(time: str) -> str:
    """Return a journaled time with its date, ``2026-11-29 03:12:44``."""
    return f"{time[:10]} {time[11:19]}"


def gpu_text(gpu_uuid: str) -> str:
    """Return a GPU UUID to its first four digits: ``GPU-8c1e…``; one that is made up says so: ``fake GPU 8c1e…``."""
    if is_fake(gpu_uuid):
        return f"fake GPU {gpu_uuid.removeprefix(FAKE_PREFIX)[:4]}…"
    prefix, dash, rest = gpu_uuid.partition("-")
    return f"{prefix}-{rest[:4]}…" if dash and len(rest) > 4 else gpu_uuid


def is_fake(gpu_uuid: str) -> bool:
    """Tell whether a device is made up (:mod:`lastgood.devices.fake_nvml`)."""
    return gpu_uuid.startswith(FAKE_PREFIX)


def has_gpu(place: Place) -> bool:
    """Tell whether a place is a GPU, and a real one."""
    return not (place.gpu_uuid.startswith("cpu-") or is_fake(place.gpu_uuid))


def device_text(place: Place) -> str:
    """Name a device: ``node-b, GPU-8c1e…, slot 1``, or ``node-b, slot 1 (no GPU)``."""
    if has_gpu(place) or is_fake(place.gpu_uuid):
        return f"{place.node}, {gpu_text(place.gpu_uuid)}, slot {place.slot}"
    return f"{place.node}, slot {place.slot} (no GPU)"


def rank_text(place: Place) -> str:
    """Name a rank with its whole place: ``rank 3 (node-b, GPU-8c1e…, slot 1)``."""
    return f"rank {place.rank} ({device_text(place).removesuffix(' (no GPU)')})"


def ranks_text(ranks: Iterable[int]) -> str:
    """Return ``rank 3``, ``ranks 2 and 3``, ``ranks 1, 2 and 3``; ``no rank`` for none; of many the first, counted."""
    numbers = [str(rank) for rank in sorted(set(ranks))]
    if not numbers:
        return "no rank"
    if len(numbers) > MOST_RANKS:
        numbers = [*numbers[: MOST_RANKS // 2], f"{step_text(len(numbers) - MOST_RANKS // 2)} more"]
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {joined(numbers)}"


def seen_on(finding: Finding) -> str:
    """Return the ranks that a finding was seen on, or that none of them stands out."""
    if finding.phase == NOT_IN_METRICS:
        return f"ranks {NOT_IN_METRICS}"
    return ranks_text(finding.ranks) if finding.ranks else "no rank stands out"


def joined(words: Sequence[str], last: str = "and") -> str:
    """Join words as in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def hex_text(fingerprint: str) -> str:
    """Return a fingerprint in groups of four digits; other texts as they are."""
    digits = fingerprint.lower().removeprefix("0x")
    if len(digits) < 8 or set(digits) - set("0123456789abcdef"):
        return fingerprint
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def quantity_text(value: float) -> str:
    """Return a quantity with two or three telling digits: ``3.3``, ``0.02``, ``128``."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 or value == 0 else f"{value:.2g}"


# windows


def window_text(window: Window | None) -> str:
    """Return the onset as ``(50, 100]``, ``step 67, contained``, or "not known"."""
    if window is None:
        return "not known"
    if window.contained:
        return f"step {step_text(window.end)}, contained"
    if _is_empty(window):
        return f"before step {step_text(window.end + 1)}"
    if window.start_attempt != window.end_attempt:
        return (
            f"(step {step_text(window.start)} of attempt {window.start_attempt}, "
            f"step {step_text(window.end)} of attempt {window.end_attempt}]"
        )
    return f"({step_text(window.start)}, {step_text(window.end)}]"


def _is_empty(window: Window) -> bool:
    """Tell whether no step is in a window: what was read was there before the first step of the attempt."""
    return window.start_attempt == window.end_attempt and window.end <= window.start


def when_phrase(incident: Incident) -> str:
    """Return when it happened: ``in steps (50, 100]``, or ``at step 67`` when a single step is left."""
    window = incident.window
    if window is None or window.contained:
        return f"at step {step_text(incident.step if window is None else window.end)}"
    if window.start_attempt != window.end_attempt:
        return (
            f"after step {step_text(window.start)} of attempt {window.start_attempt} and "
            f"by step {step_text(window.end)} of attempt {window.end_attempt}"
        )
    if _is_empty(window):
        return window_text(window)
    if window.end - window.start == 1:
        return f"at step {step_text(window.end)}"
    return f"in steps {window_text(window)}"


# the verdict


def status_word(incident: Incident) -> str:
    """Return the verdict word in capitals: ``ATTRIBUTED``."""
    return incident.status.upper()


def scope_phrase(incident: Incident) -> str:
    """Return what the verdict word refers to: ``to a GPU``, ``between two GPUs``, ``not hardware``."""
    thing = _thing(incident)
    if incident.status == "attributed":
        return {"gpu": f"to a {thing}", "node": "to a node", "group": "to a group"}.get(incident.scope, "to the job")
    if incident.status == "undecided":
        count = len(incident.suspects)
        number = {2: "two", 3: "three", 4: "four"}.get(count, str(count))
        things = thing.replace("device", "devices") if thing.startswith("device") else f"{thing}s"
        return f"between {number} {things}" if count else ""
    return {"confirmed": "no rank stands out", "cleared": "not hardware"}.get(incident.status, "not yet known why")


def _thing(incident: Incident) -> str:
    """Return what was named. Mixed and without suspects: what is surely true of them."""
    if incident.suspects and all(has_gpu(s) for s in incident.suspects):
        return "GPU"
    if incident.suspects and all(is_fake(s.gpu_uuid) for s in incident.suspects):
        return "fake GPU"
    return "device without a GPU"


def nature_phrase(incident: Incident) -> str:
    """Return ``persistent fault``, ``transient fault`` or ``nature unknown``."""
    return "nature unknown" if incident.nature == "unknown" else f"{incident.nature} fault"


def state_phrase(incident: Incident) -> str:
    """Return where the incident stands: ``open``, ``recovered by attempt 2``, ``closed: cleared``, ``reopened``."""
    if incident.state == "recovered" and incident.recovered_by is not None:
        return f"recovered by attempt {incident.recovered_by}"
    if incident.state == "closed":
        how = incident.closed_by or "cleared"
        if how in ("cleared", NOT_IN_METRICS):
            return f"closed: {'cleared' if how == 'cleared' else f'by whom is {how}'}"
        return f"closed by {how}"
    return incident.state


def not_deterministic(incident: Incident) -> bool:
    """Tell whether the incident says that the job does not repeat itself: a ruled replay that can name nobody."""
    return incident.check == "replay" and not incident.suspects and incident.status not in {"cleared", "suspicious"}


def only_numbers(incident: Incident) -> bool:
    """Tell whether nothing but numbers differ, in a job that does not repeat itself: bits that differ name ranks."""
    finding = _first(incident)
    return incident.check == "replay" and incident.status == "suspicious" and not (finding and finding.ranks)


def headline(incident: Incident) -> str:
    """Return the sentence that answers "which rank lied?": subject, verb, steps."""
    if not_deterministic(incident):
        return "This job does not repeat itself. No GPU is accused."
    if incident.status == "cleared":
        return _cleared(incident)
    if incident.status == "suspicious":
        return f"{_suspicion(incident)} Not yet known why."
    if not incident.suspects:
        return f"{_nameless(incident)} No rank stands out."
    return f"{_capital(_subject(incident))} {_deed(incident)}."


def _cleared(incident: Incident) -> str:
    step = step_text(incident.step)
    if incident.check == "finite":
        word = nonfinite_word(_first(incident)).removeprefix("a ")
        if many := _shared_by(incident):
            return f"The {word} of {step_text(many)} ranks at step {step} came from the data or the software, no GPU."
        return f"The {word} at step {step} came from the data: it came back on another node."
    if incident.check == "replica":
        return f"The different weights at step {step} came from the software: no GPU is accused."
    return f"The mismatch at step {step} came from the software or the data: no GPU is accused."


def _suspicion(incident: Incident) -> str:
    """Say a symptom: who saw it, since nobody is named yet."""
    if not _named(incident):
        return _nameless(incident)
    many = _shared_by(incident)
    subject = f"{step_text(many)} ranks" if many else _capital(_subject(incident))
    return _had(incident, subject) if incident.check == "finite" else f"{subject} {_deed(incident)}."


def _shared_by(incident: Incident) -> int:
    """Return how many ranks showed the symptom, when they are too many to be named; else 0."""
    finding = _first(incident)
    return len(finding.ranks) if finding and len(finding.ranks) > _MOST_NAMED else 0


def _had(incident: Incident, subject: str) -> str:
    """Say whose numbers were not finite, and where."""
    finding = _first(incident)
    place = {"loss": "loss", "reduced": "averaged gradient"}.get(finding.phase if finding else "", "gradient")
    whose = "their" if _shared_by(incident) else "its"
    return f"{subject} had {nonfinite_word(finding)} in {whose} {place} at step {step_text(incident.step)}."


def _nameless(incident: Incident) -> str:
    when = when_phrase(incident)
    match incident.check:
        case "conservation":
            return f"A wrong value was made inside the reduce {when}."
        case "finite" if many := _shared_by(incident):
            return _had(incident, f"{step_text(many)} ranks")
        case "finite":
            word = nonfinite_word(_first(incident))
            return f"{_capital(word)} came out of the reduce at step {step_text(incident.step)}."
        case "replica":
            return f"The replicas came to hold {_different(incident)} {when}."
        case "at_rest":
            return f"Weights changed while nobody wrote them {when}."
        case _ if only_numbers(incident):
            return f"A gradient may have been wrong {when}: two nodes differ by more than this job's repeats explain."
        case _:
            return f"A wrong gradient was computed {when}."


def _deed(incident: Incident, when: str = "") -> str:
    when = when or when_phrase(incident)
    match incident.check:
        case "conservation":
            return f"left the reduce {when} with a wrong value"
        case "finite":
            word, step = nonfinite_word(_first(incident)), f"at step {step_text(incident.step)}"
            return f"computed {word} {step}" if when == step else f"computed wrong gradients {when}: {word} {step}"
        case "replica":
            return f"held {_different(incident)} {when}"
        case "at_rest":
            return f"had bits change while nobody wrote them {when}"
        case _:
            return f"computed wrong gradients {when}"


def _different(incident: Incident) -> str:
    if incident.origin == "metrics":
        return f"different weights or another optimizer state (which is {NOT_IN_METRICS})"
    tensor = next((f.tensor for f in incident.findings if f.tensor and f.check == incident.check), None)
    kind = "a different optimizer state" if tensor and is_optimizer_state(tensor) else "different weights"
    return f"{kind} ({tensor})" if tensor else kind


def is_optimizer_state(tensor: str) -> bool:
    """Tell a tensor of the optimizer (``<parameter>/<state key>``) from a weight."""
    return "/" in tensor


def nonfinite_word(finding: Finding | None) -> str:
    """Return what a ``finite`` finding saw: ``NaN``, ``infinity``, or ``a non-finite value`` when it does not say."""
    seen = finding.observed.lower() if finding else ""
    if "nan" in seen:
        return "NaN"
    return "infinity" if "inf" in seen.replace("non-finite", "") else "a non-finite value"


def _first(incident: Incident) -> Finding | None:
    return next((f for f in incident.findings if f.check == incident.check), None)


def _named(incident: Incident) -> Sequence[Place]:
    """Return whom the headline speaks of: the accused, else the candidates, else who showed the symptom."""
    accused = [s for s in incident.suspects if s.role == "accused"]
    if incident.status == "attributed" and accused:
        return accused
    finding = _first(incident)
    return incident.suspects or (finding.places if finding and incident.status == "suspicious" else ())


def _subject(incident: Incident) -> str:
    named = _named(incident)
    nodes = sorted({place.node for place in named})
    if incident.status != "attributed":
        return _alternatives(named, nodes)
    if incident.scope == "node" and len(nodes) == 1 and len(named) > 1:
        return f"node {nodes[0]} ({ranks_text(place.rank for place in named)})"
    if len(named) > 1:
        return f"{ranks_text(place.rank for place in named)} ({', '.join(nodes)})"
    return rank_text(named[0])


def _alternatives(named: Sequence[Place], nodes: Sequence[str]) -> str:
    if len(named) > _MOST_NAMED:
        return f"one of {len(named)} ranks on {len(nodes)} {'nodes' if len(nodes) > 1 else 'node'}"
    apart = len(nodes) == len(named)
    return joined([f"rank {p.rank} ({p.node})" if apart else rank_text(p) for p in named], "or")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# what to do


def resume_headline(resume: LastGood | None) -> str:
    """Return the number to resume from: ``step 50``, or ``nothing``."""
    return f"step {step_text(resume.step)}" if resume is not None and resume.exists else "nothing"


def resume_command(resume: LastGood | None) -> str | None:
    """Return the line to put into the training script, with plain digits; None without a checkpoint, or its path."""
    if resume is None or not _usable(resume) or not resume.path_known:
        return None
    return f"monitor.resume({json.dumps(resume.path, ensure_ascii=False)})"


def _usable(resume: LastGood) -> bool:
    return resume.exists and resume.trust in ("trusted", "unverified")


def skipped(incident: Incident) -> bool:
    """Tell whether the attempt with the finding went on itself: a step was skipped, and nobody has to resume."""
    by = incident.recovered_by
    return by is not None and by <= max((f.attempt for f in incident.findings), default=incident.attempt)


def resume_number(incident: Incident) -> str:
    """Return what RESUME FROM says: ``step 50``, ``nothing``, or ``not needed`` where a step was skipped."""
    return NOT_NEEDED if skipped(incident) else resume_headline(incident.resume)


def not_needed(resume: LastGood | None) -> str:
    """Say why nobody has to resume from a skipped step, and what was the last good checkpoint then."""
    good = f" Last good at the verdict: {resume_headline(resume)}." if resume is not None and resume.exists else ""
    return f"No resume needed: the step was skipped and training went on.{good}"


def excluded_nodes(incident: Incident) -> tuple[str, ...]:
    """Return the nodes to leave out when resuming: those of accused devices, and of candidates of exact evidence.

    Candidates on all nodes of the attempt cannot be left out: nothing would remain.
    """
    named = incident.status == "attributed" or (incident.status == "undecided" and incident.other_nodes)
    return tuple(sorted({s.node for s in incident.suspects})) if named else ()


def without_phrase(incident: Incident) -> str:
    """Return ``without node-b``, or nothing when no node is to be left out."""
    nodes = excluded_nodes(incident)
    return f"without {joined(nodes)}" if nodes else ""


def drain_command(node: str, incident: Incident) -> str:
    """Return the Slurm command that keeps new jobs off a node."""
    return f"scontrol update nodename={shlex.quote(node)} state=drain reason={shlex.quote(incident.id)}"


_REPEAT_ITSELF: Final = "Make the job repeat itself: same thread count and deterministic kernels on every rank"


def advice(incident: Incident) -> tuple[tuple[str, str | None], ...]:
    """Return what to do, first things first: (words, command or None)."""
    if not_deterministic(incident):
        return ((_REPEAT_ITSELF, None),)
    if incident.status == "cleared":
        return (("Look at the batch and the code of this step; no device needs attention", None),)
    steps: list[tuple[str, str | None]] = []
    command = resume_command(incident.resume)
    if skipped(incident):
        steps.append(("Nothing to resume: the step was skipped and training went on", None))
    elif incident.recovered_by is not None:
        words = f"Resumed from {resume_headline(incident.resume)} {without_phrase(incident)}".strip()
        steps.append((f"{words}: attempt {incident.recovered_by} has recovered", None))
    elif incident.resume is not None and _usable(incident.resume):
        words = f"Resume from {resume_headline(incident.resume)} {without_phrase(incident)}".strip()
        steps.append((words, command))
    elif incident.status != "suspicious" and (incident.resume is None or incident.resume.from_the_start):
        steps.append((f"Start again from step 0 {without_phrase(incident)}".strip(), None))
    accused = sorted({s.node for s in incident.suspects if s.role == "accused"})
    steps += [(f"Drain {node}", drain_command(node, incident)) for node in accused]
    if incident.status == "undecided":
        steps.append((_third_node(incident), None))
    if only_numbers(incident):
        steps.append(("Leave out the rank that the pairs have in common, and see whether it comes back", None))
        steps.append((f"{_REPEAT_ITSELF}; then replay can tell who is wrong", None))
    return tuple(steps) or (("Wait for the next replay: it decides", None),)


def _third_node(incident: Incident) -> str:
    if incident.other_nodes:
        return "Repeat the window with a third node: it settles who is wrong"
    count = len({s.node for s in incident.suspects})
    needed = "a third node" if count == 2 else "one more node"
    return f"Repeat the window with {needed}: {needed} is needed to settle who is wrong and to leave a node out"


def cost_text(cost: Cost, gpus: bool, *, recovered: bool = True) -> tuple[str, str, str]:
    """Return the cost as (number, detail, how far): ``50 steps``, ``6 s · 0.01 GPU-h``, ``from …``.

    No time was lost where a step was skipped in a run that went on. Until recovery the time ends at the newest event
    of training, which a run that is stopped, or silent between two checks, does not move.
    """
    unit = "GPU-h" if gpus else "device-h"
    number = steps_text(cost.steps)
    detail = f"{duration_text(cost.seconds)} · {quantity_text(cost.device_hours)} {unit}"
    if not cost.seconds and not cost.rising:
        return number, detail, "skipped: training went on"
    if recovered and not cost.rising:
        return number, detail, "from the resume step to recovery"
    end = "not recovered" if cost.rising else "closed, not recovered"
    return number, detail, f"from the resume step to the newest event of training; {end}"
