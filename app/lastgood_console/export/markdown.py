"""Render an incident document as Markdown under the headings of a post-mortem.

Summary, Impact, Timeline, Suspects, Checkpoints, Actions, What is not known: the draft that whoever writes the
post-mortem would otherwise copy together. Made from the document alone, so the same document gives the same bytes. All
that others wrote goes through :mod:`lastgood_console.export.markup`. Pictures are in the HTML report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lastgood import wording
from lastgood.state import NOT_IN_METRICS
from lastgood.timeline import SAID_KINDS
from lastgood_console.export import story
from lastgood_console.export.markup import code, table, words
from lastgood_console.export.origin import STORY_WORDS, nothing_covered, origin_words, saves_words, window_to_avoid
from lastgood_console.export.plain import plain_steps

Document = Mapping[str, Any]


def render(document: Document) -> str:
    """Return the post-mortem's text."""
    parts = (
        _summary(document), _impact(document), _timeline(document), _suspects(document), _checkpoints(document),
        _actions(document), _unknown(document), _footer(document),
    )  # fmt: skip
    title = f"# Incident {words(document['incident']['id'])} in run {words(document['run'])}"
    text = "\n".join([title, *(line for part in parts for line in part)]) + "\n"
    return plain_steps(text, document)


def _heading(text: str) -> list[str]:
    return ["", f"## {text}", ""]


def _facts(rows: list[tuple[str, str]]) -> list[str]:
    """Return a table of two columns without the rows that say nothing."""
    return table(("What", "Value"), [row for row in rows if row[1]])


def _list(items: list[str], nothing: str = "") -> list[str]:
    return [f"- {item}" for item in items] or ([nothing] if nothing else [])


# the parts


def _summary(document: Document) -> Iterator[str]:
    said, incident = document["words"], document["incident"]
    yield from _heading("Summary")
    yield f"**{words(said['headline'])}**"
    if "metrics" in document:
        yield from ["", words(origin_words(document["metrics"]["told_at"]))]
    yield ""
    verdict = " · ".join(
        words(part) for part in (said["status"], said["scope"], said["confidence"], said["nature"]) if part
    )
    yield from _facts([
        ("Verdict", verdict),
        ("State", words(said["state"])),
        ("Known since", f"{_date(incident['opened_at'])} UTC"),
        ("Acknowledged", _word(incident["acknowledged"])),
        ("Cause", _word(incident["cause"])),
        ("Found by", f"{words(incident['check'])} at step {_step(incident['step'])} of attempt {incident['attempt']}"),
        ("Window", words(said["window"])),
        ("Resume from", _resume(document)),
        ("Do not use", _covered(document)),
    ])  # fmt: skip
    for name, key in (("Why", "for"), ("Against", "against")):
        yield from ["", f"### {name}", "", *_list([words(text) for text in said[key]], _NOTHING)]


_NOTHING = f"{wording.NOTHING_KNOWN.capitalize()}."


def _word(word: Mapping[str, Any] | None) -> str:
    """Return what a person said, with name and time; nothing when nobody said it."""
    if word is None:
        return ""
    by = f"{words(word['by'])}, {_date(word['at'])} UTC"
    return f"{words(word['text'])} ({by})" if word["text"] else by


def _resume(document: Document) -> str:
    resume, number = document["resume"], document["words"]["resume"]
    if resume is None or number == wording.NOT_NEEDED:
        return words(number)
    without = document["words"]["without"]
    where = f"{words(number)} of attempt {resume['attempt']}, {resume['trust']}: {code(resume['path'])}"
    return f"{where}, {words(without)}. {words(resume['reason'])}" if without else f"{where}. {words(resume['reason'])}"


def _covered(document: Document) -> str:
    if avoid := window_to_avoid(document):
        return words(" ".join(avoid[1]))
    named = [f"step {_step(save['step'])} ({save['trust']}): {code(save['path'])}" for save in document["covered"][:6]]
    more = len(document["covered"]) - len(named)
    if not named:
        return f"nothing: {nothing_covered(document)}"
    return ", ".join([*named, f"{more} more, see Checkpoints"] if more else named)


def _impact(document: Document) -> Iterator[str]:
    number, detail, how_far = document["words"]["cost"]
    covered, refused = len(document["covered"]), document["refused"]
    yield from _heading("Impact")
    lost = [f"Cost: {words(number)}, {words(detail)} ({words(how_far)})."]
    avoid = window_to_avoid(document)
    lost.append(f"Saves that must not be used: {avoid[0] if avoid else covered or 'none'}.")
    lost += [f"Attempt {save['attempt']}, step {_step(save['step'])}: {words(save['text'])}." for save in refused]
    for attempt in document["attempts"]:
        on = f"{len(attempt['nodes'])} nodes" if attempt["nodes"] else "nodes that are not known"
        nodes = f"{attempt['world_size']} ranks on {on}"
        end = f"ended at step {_step(attempt['last_step'])} ({words(attempt['end_reason'])})"
        stands = end if attempt["ended_at"] else f"at step {_step(attempt['last_step'])}"
        lost.append(f"Attempt {attempt['number']}: {nodes}, from step {_step(attempt['from_step'])}, {stands}.")
    yield from _list(lost)


def _timeline(document: Document) -> Iterator[str]:
    yield from _heading("Timeline")
    yield "Two clocks: when it happened, and when it was known (UTC)."
    yield ""
    rows = [(words(row.happened), words(row.known), _event(row), words(row.who)) for row in story.rows(document)]
    yield from table(("Happened", "Known", "Event", "By"), rows)
    if "metrics" in document:
        yield from ["", STORY_WORDS]
    for text in document["injected"]:
        yield from ["", f"Ground truth of a demo or drill, which no check reads: {words(text)}."]


def _event(row: story.Row) -> str:
    """Return our words, and behind them what others said, with a direction of its own."""
    return f"{words(row.words)} {words(row.said)}" if row.said else words(row.words)


def _suspects(document: Document) -> Iterator[str]:
    yield from _heading("Suspects")
    if document["suspects"]:
        rows = [
            (str(s["rank"]), words(s["node"]), code(s["gpu_uuid"]), str(s["slot"]), s["role"])
            for s in document["suspects"]
        ]
        yield from table(("Rank", "Node", "GPU", "Slot", "Role"), rows)
    else:
        yield "Nobody is named."
    yield from ["", "### Evidence", ""]
    yield from table(("Check", "Result", "Happened", "Known", "Subject", "Observed", "Expected", "Evidence"),
                     [_evidence_row(row) for row in document["evidence"]])  # fmt: skip


def _evidence_row(row: Mapping[str, Any]) -> list[str]:
    subject = words(row["subject"]) + (f" {code(row['where'])}" if row["where"] else "")
    return [
        words(row["check"]), wording.RESULT_WORDS[row["result"]], words(row["happened"]), _date(row["known_at"]),
        subject, code(row["observed"]), code(row["expected"]), words(row["detail"]),
    ]  # fmt: skip


def _checkpoints(document: Document) -> Iterator[str]:
    yield from _heading("Checkpoints")
    if "metrics" in document:
        yield saves_words(document["metrics"]["checkpoints"])
        return
    if not document["checkpoints"]:
        yield "Nothing saved yet."
        return
    rows = [_checkpoint_row(save, document["resume"]) for save in document["checkpoints"]]
    yield from table(("Step", "Attempt", "Trust", "Path", "Why"), rows)
    if document["checkpoints_omitted"]:
        yield from ["", f"{document['checkpoints_omitted']} more trusted checkpoints are not listed."]
    yield from ["", wording.TRUSTED_MEANS]


def _checkpoint_row(save: Mapping[str, Any], resume: Mapping[str, Any] | None) -> list[str]:
    named = resume is not None and all(save[key] == resume[key] for key in ("attempt", "step", "path"))
    mark = "**Last good.** " if save["last_good"] else "**Resume point of this incident.** " if named else ""
    trust = f"{wording.TRUST_SYMBOLS[save['trust']]} {save['trust']}"
    return [_step(save["step"]), str(save["attempt"]), trust, code(save["path"]), mark + words(save["reason"])]


def _actions(document: Document) -> Iterator[str]:
    yield from _heading("Actions")
    for number, advice in enumerate(document["words"]["do"], 1):
        yield f"{number}. {words(advice['words'])}" + (f": {code(advice['command'])}" if advice["command"] else "")
    nothing = f"This is {NOT_IN_METRICS}." if "metrics" in document else "Nothing yet."
    done = [
        f"{_date(entry['known_at'])} {words(entry['who'])}: {_event(story.row(entry))}"
        for entry in document["timeline"]
        if entry["kind"] in SAID_KINDS and entry["who"] != "lastgood"
    ]
    yield from ["", "### What people did and said", "", *_list(done, nothing)]


def _unknown(document: Document) -> Iterator[str]:
    yield from _heading("What is not known")
    yield from _list([words(text) for text in document["words"]["unknown"]], _NOTHING)


def _footer(document: Document) -> Iterator[str]:
    written = document["written"]
    unreadable = [code(f"{u['file']}:{u['line']}" if u["line"] else u["file"]) for u in written["unreadable"][:3]]
    more = len(written["unreadable"]) - len(unreadable)
    lines = f"could not be read: {', '.join(unreadable)}{f' and {more} more' if more else ''}"
    yield from ["", "---", ""]
    yield (
        f"Written by {words(written['by'])} from {written['events']} journal events up to {_date(written['at'])} UTC, "
        f"sha256 {code(written['events_digest'])}; {lines if unreadable else 'no line was unreadable'}."
    )


def _date(time: str | None) -> str:
    return wording.date_text(time) if time else ""


def _step(step: int) -> str:
    """Return plain digits: exports are read by programs too."""
    return str(step)
