"""Render an incident document as one HTML file: offline, no script, printable on A4.

The page is made from the document alone (:mod:`lastgood_console.export.document`), so whatever it shows is in the
JSON, and the same document gives the same bytes. It is light or dark as the reader's screen is; paper is light. Every
value is escaped; texts that people wrote and paths carry their own direction (``dir="auto"``), so a right-to-left name
does not turn the sentence around it, and what would turn the writing direction is replaced by a mark. The content
policy in the head forbids whatever a browser could be talked into loading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any

from lastgood import wording
from lastgood.state import LastGood
from lastgood.timeline import STATUS_TONES
from lastgood_console.characters import escape
from lastgood_console.export import story
from lastgood_console.export.origin import STORY_WORDS, nothing_covered, origin_words, saves_words, window_to_avoid
from lastgood_console.export.peers_chart import peers_svg
from lastgood_console.export.plain import plain_steps
from lastgood_console.export.svg import timeline_svg
from lastgood_console.export.symbols import icon
from lastgood_console.export.tokens import css_variables

Document = Mapping[str, Any]

_GROUND_TRUTH = "This is the ground truth of a demo or drill; no check reads it."
_RESULT_TONES = {"passed": "trusted", "failed": "accused", "not_run": "missing"}


def render(document: Document) -> str:
    """Return the report as a whole HTML page."""
    body = "\n".join(
        [
            _header(document),
            *_verdict(document),
            _panels(document),
            _reasons(document),
            *_timeline(document),
            *_peers(document),
            *_story(document),
            *_evidence(document),
            *_checkpoints(document),
            _footer(document),
        ]
    )
    page = (
        f'<!doctype html>\n<html lang="en">\n<head>\n{_head(document)}\n</head>\n<body>\n<main>\n{body}\n</main>\n'
        "</body>\n</html>\n"
    )
    return plain_steps(page, document)


def _head(document: Document) -> str:
    title = f"{document['run']} · {document['incident']['id']} · lastgood incident report"
    css = files(__package__).joinpath("report.css").read_text("utf-8")
    return (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f'<meta name="generator" content="{e(document["written"]["by"])}">\n<title>{e(title)}</title>\n'
        f"<style>\n{colours()}\n{css}</style>"
    )


def colours() -> str:
    """Return the tokens: light, and dark for a reader who wants it on a screen. Paper is light."""
    dark = f":root {{ color-scheme: dark; {css_variables('dark')} }}"
    return (
        f":root {{ color-scheme: light; {css_variables('light')} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ {dark} }}"
    )


# small pieces


def e(value: Any) -> str:
    """Escape a value for HTML; what would turn the writing direction shows as a mark."""
    return escape(str(value))


def said(text: Any) -> str:
    """Return a person's words or a path, escaped, with its own direction."""
    return f'<bdi dir="auto">{e(text)}</bdi>' if text else ""


def code(text: Any) -> str:
    """Return a path, tensor or fingerprint in the fixed font, escaped, with its own direction."""
    return f'<code><bdi dir="auto">{e(text)}</bdi></code>'


def breakable(html: str) -> str:
    """Let a dotted name break after its dots."""
    return html.replace(".", ".<wbr>")


def with_symbol(tone: str, word: str, css_class: str = "") -> str:
    """Return a symbol and its word."""
    return f'<span class="sw {e(css_class or tone)}">{icon(tone)}{e(word)}</span>'


def table(name: str, heads: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Return a table of the class ``name``; rows are (class, cells), cells are HTML; ``keep|`` keeps one unbroken."""
    top = "".join(f'<th scope="col">{e(head)}</th>' for head in heads)
    body = "\n".join(f"<tr{_class(style)}>{''.join(map(_cell, cells))}</tr>" for style, cells in rows)
    parts = f"<thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody>"
    return f'<div class="scroll"><table class="{name}">{parts}</table></div>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _cell(html: str) -> str:
    return f'<td class="keep">{html[5:]}</td>' if html.startswith("keep|") else f"<td>{html}</td>"


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?", "…")) else f"{text}."


# from the top


def _header(document: Document) -> str:
    about = (
        f"{said(document['run'])} · {e(document['incident']['id'])} · "
        f"known since {e(wording.date_text(document['incident']['opened_at']))} UTC · written "
        f"{e(wording.date_text(document['written']['at']))} UTC · {e(document['words']['state'])}"
    )
    return f"<header><span><b>lastgood</b> incident report</span><span>{about}</span></header>"


def _verdict(document: Document) -> Iterator[str]:
    words, status = document["words"], document["incident"]["status"]
    tone = STATUS_TONES[status]
    facts = [words["scope"], words["confidence"], words["nature"]]
    line = " · ".join(e(fact) for fact in facts if fact)
    yield f'<p class="verdict">{icon(tone)}<span class="word {tone}">{e(words["status"])}</span><span>{line}</span></p>'
    yield f"<h1>{said(words['headline'])}</h1>"
    if "metrics" in document:
        yield f'<p class="hint">{e(origin_words(document["metrics"]["told_at"]))}</p>'


def _panels(document: Document) -> str:
    resume = document["resume"]
    trust = resume["trust"] if resume else "none"
    inner = "".join(
        f'<div class="panel">{part}</div>' for part in (_resume(document), _do_not_use(document), _cost(document))
    )
    command = ""
    if resume and resume["command"]:
        without = f'  <span class="words">on nodes {said(document["words"]["without"])}</span>'
        command = (
            f'<p class="command mono">{said(resume["command"])}{without if document["words"]["without"] else ""}</p>'
        )
    return f'<section class="panels {e(trust)}"><div class="row">{inner}</div>{command}</section>'


def _resume(document: Document) -> str:
    resume, words = document["resume"], document["words"]
    if resume is None:
        goes_on = document["incident"]["status"] == "cleared"
        why = (
            "Training went on: the step was kept out of the weights."
            if goes_on
            else "No checkpoint can be resumed from."
        )
        return f'<p class="label">RESUME FROM</p><p class="number">nothing</p><p>{e(why)}</p>'
    if words["resume"] == wording.NOT_NEEDED:
        good = LastGood(**{key: resume[key] for key in ("attempt", "step", "path", "trust", "reason")})
        why = wording.not_needed(good)
        return f'<p class="label">RESUME FROM</p><p class="number">{e(words["resume"])}</p><p>{e(why)}</p>'
    symbol = with_symbol(resume["trust"], resume["trust"])
    reason = said(_sentence(resume["reason"]))
    return f'<p class="label">RESUME FROM</p><p class="number">{e(words["resume"])} {symbol}</p><p>{reason}</p>'


def _do_not_use(document: Document) -> str:
    covered = document["covered"]
    if avoid := window_to_avoid(document):
        lines = "".join(f"<p>{e(line)}</p>" for line in avoid[1])
        return f'<p class="label">DO NOT USE</p><p class="number">{e(avoid[0])}</p>{lines}'
    if not covered:
        return f'<p class="label">DO NOT USE</p><p class="number">nothing</p><p>{e(_nothing_covered(document))}</p>'
    worst = "tainted" if any(c["trust"] == "tainted" for c in covered) else "suspect"
    number = f"step {wording.step_text(covered[0]['step'])}" if len(covered) == 1 else f"{len(covered)} saves"
    mark = f'<p class="number">{e(number)} {with_symbol(worst, worst)}</p>'
    return f'<p class="label">DO NOT USE</p>{mark}<p>{e(_covered(covered))}</p>'


def _covered(covered: list[Mapping[str, Any]]) -> str:
    """Say which saves are covered: up to six steps by number, and by which attempts."""
    steps = [wording.step_text(c["step"]) for c in covered]
    attempts = sorted({c["attempt"] for c in covered})
    said_by = f"attempt{'' if len(attempts) == 1 else 's'} {wording.joined([str(a) for a in attempts])}"
    where = "inside the window" if len(attempts) == 1 else "inside the window or from such a save"
    if len(covered) == 1:
        return f"Saved by {said_by} {where}."
    listed = wording.joined(steps) if len(steps) <= 6 else f"{steps[0]} to {steps[-1]}"
    return f"Steps {listed}, saved by {said_by} {where}."


def _nothing_covered(document: Document) -> str:
    refused = [r for r in document["refused"] if r["attempt"] == document["incident"]["attempt"]]
    if not refused:
        return nothing_covered(document)
    steps = wording.joined([wording.step_text(r["step"]) for r in refused])
    return f"The save of step {steps} was refused: nothing damaged was kept."


def _cost(document: Document) -> str:
    number, detail, how_far = document["words"]["cost"]
    parts = " · ".join(f'<span class="whole">{e(part)}</span>' for part in detail.split(" · "))
    return f'<p class="label">COST</p><p class="number">{e(number)}</p><p>{parts}<br>{e(how_far)}</p>'


def _reasons(document: Document) -> str:
    words = document["words"]
    rows = [(name, words[key]) for name, key in (("WHY", "for"), ("AGAINST", "against"), ("UNKNOWN", "unknown"))]
    out = [f"<dt>{name}</dt><dd>{_texts(texts)}</dd>" for name, texts in rows]
    steps = "<br>".join(
        f"{i} {said(step['words'])}{': ' + code(step['command']) if step['command'] else ''}"
        for i, step in enumerate(words["do"], 1)
    )
    cause = document["incident"]["cause"]
    out += [f"<dt>CAUSE</dt><dd>{said(cause['text'])} <small>{_by(cause)}</small></dd>"] if cause else []
    return f"<dl>{''.join(out)}<dt>DO</dt><dd>{steps}</dd></dl>"


def _by(word: Mapping[str, Any]) -> str:
    return f"said by {said(word['by'])}, {e(wording.date_text(word['at']))} UTC"


def _texts(texts: list[str]) -> str:
    """Join sentences; an empty list says so."""
    if not texts:
        return e(wording.NOTHING_KNOWN.capitalize() + ".")
    shown = " ".join(said(_sentence(text)) for text in texts[:3])
    return shown + (f" And {len(texts) - 3} more in the JSON export." if len(texts) > 3 else "")


def _timeline(document: Document) -> Iterator[str]:
    yield "<h2>Timeline</h2>"
    yield f'<figure>{timeline_svg(document)}<figcaption class="key">{_key(document)}</figcaption></figure>'
    for text in document["injected"]:
        yield f'<p class="injected">{said(_sentence(text))} {e(_GROUND_TRUTH)}</p>'


def _key(document: Document) -> str:
    saves = {entry["tone"] for entry in document["timeline"] if entry["kind"] == "saved"}
    kinds = {entry["kind"] for entry in document["timeline"]}
    order = ("trusted", "unverified", "suspect", "tainted", "missing", "unreadable")
    parts = [f"<span>{icon(tone)}{tone}</span>" for tone in order if tone in saves]
    others = (("refused", "tainted", "refused save"), ("failed_save", "missing", "failed save"))
    parts += [f"<span>{icon(tone)}{word}</span>" for kind, tone, word in others if kind in kinds]
    parts += [f"<span>{icon('accused')}failed check</span>"] if "failed" in kinds else []
    window = document["window"]
    if window and not window["contained"]:
        parts.append(f"<span><i></i>window {e(document['words']['window'])}</span>")
    return "".join(["<span>UTC; steps beside it</span>", *parts])


def _peers(document: Document) -> Iterator[str]:
    for peers in document["peers"]:
        metric = {"grad_norm_local": "local gradient norm"}.get(peers["metric"], peers["metric"])
        hint = f"{metric}, difference from the median of the peers, by step · context only: a metric never accuses"
        yield f"<h2>Rank {e(peers['rank'])} against its peers<small>{e(hint)}</small></h2>"
        yield f"<figure>{peers_svg(peers, document['window'])}</figure>"


def _story(document: Document) -> Iterator[str]:
    yield "<h2>What happened, and when we knew</h2>"
    yield table("story", ("Happened", "Known (UTC)", "Event", "By"), map(_story_row, story.rows(document)))
    if "metrics" in document:
        yield f'<p class="hint">{e(STORY_WORDS)}</p>'


def _story_row(row: story.Row) -> tuple[str, tuple[str, ...]]:
    who = f"keep|{said(row.who)}" if len(row.who) <= 16 else said(row.who)
    return "", (f"keep|{e(row.happened)}", f"keep|{e(row.known)}", said(row.words) + said(row.said), who)


def _evidence(document: Document) -> Iterator[str]:
    yield "<h2>Evidence</h2>"
    yield table(
        "evidence", ("Check", "Result", "Subject", "Observed", "Expected"), map(_evidence_row, document["evidence"])
    )


def _evidence_row(row: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    result = with_symbol(_RESULT_TONES[row["result"]], wording.RESULT_WORDS[row["result"]], row["result"])
    subject = e(row["subject"]) or "–"
    if row["where"]:
        subject += f"<small>{breakable(code(row['where']))}</small>"
    if row["happened"]:
        known = f", known {wording.date_text(row['known_at'])}" if row["known_at"] else ""
        subject += f"<small>{e(row['happened'] + known)}</small>"
    seen = code(wording.hex_text(row["observed"])) if row["observed"] else "–"
    wanted = code(wording.hex_text(row["expected"])) if row["expected"] else ""
    detail = f"<small>{said(row['detail'])}</small>" if wanted and row["detail"] else said(row["detail"])
    return "", (f"keep|{e(row['check'])}", f"keep|{result}", subject, seen, wanted + detail or "–")


def _checkpoints(document: Document) -> Iterator[str]:
    yield "<h2>Checkpoints</h2>"
    if "metrics" in document:
        yield f"<p>{e(saves_words(document['metrics']['checkpoints']))}</p>"
        return
    if not document["checkpoints"]:
        yield "<p>Nothing saved yet.</p>"
        return
    rows = [_checkpoint_row(save, document["resume"]) for save in document["checkpoints"]]
    yield table("saves", ("Step", "Attempt", "Trust", "Path", "Why"), rows)
    if document["checkpoints_omitted"]:
        yield f'<p class="hint">{e(document["checkpoints_omitted"])} more trusted checkpoints are not listed.</p>'


def _checkpoint_row(save: Mapping[str, Any], resume: Mapping[str, Any] | None) -> tuple[str, tuple[str, ...]]:
    named = resume is not None and all(save[key] == resume[key] for key in ("attempt", "step", "path"))
    said_first = "Last good." if save["last_good"] else "Resume point of this incident." if named else ""
    mark = f"<b>{said_first}</b> " if said_first else ""
    cells = (
        f"keep|{e(wording.step_text(save['step']))}",
        e(save["attempt"]),
        f"keep|{with_symbol(save['trust'], save['trust'])}",
        f"keep|{code(save['path'])}" if len(save["path"]) <= 40 else code(save["path"]),
        mark + said(save["reason"]),
    )
    return ("last-good" if save["last_good"] else "", cells)


def _footer(document: Document) -> str:
    written = document["written"]
    unreadable = written["unreadable"]
    lines = (
        "no line was unreadable" if not unreadable else f"{len(unreadable)} could not be read: {_places(unreadable)}"
    )
    digest = wording.hex_text(written["events_digest"][:16])
    return (
        f"<footer>{e(wording.TRUSTED_MEANS)} Written from {e(written['events'])} journal events, sha256 "
        f'<span title="{e(written["events_digest"])}">{e(digest)}</span>; {lines}. {e(written["by"])}.</footer>'
    )


def _places(unreadable: list[Mapping[str, Any]]) -> str:
    shown = [said(f"{u['file']}:{u['line']}" if u["line"] else u["file"]) for u in unreadable[:3]]
    return ", ".join(shown) + (f" and {len(unreadable) - 3} more" if len(unreadable) > 3 else "")
