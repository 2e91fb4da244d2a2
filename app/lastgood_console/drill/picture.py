"""Draw a drill as one HTML file: the map of sites and kinds, the targets, the rows, what missed. Offline, no script.

It is made from the drill's document alone (:func:`lastgood.drill.summary.document`), in the colours of the incident
report. A cell carries its meaning as a mark and a number; colour repeats it. Every value is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from lastgood.drill.plan import ALL_ROWS, BYTE, COLUMNS
from lastgood.drill.summary import COLUMNS_MEAN
from lastgood_console.export.html import colours, e, table

Document = Mapping[str, Any]
Trials = Sequence[Mapping[str, Any]]

_CSS: Final = """
body { max-width: 940px; overflow-wrap: normal; }
.map { table-layout: fixed; margin-top: 8px; }
.map th { white-space: normal; vertical-align: bottom; text-align: center; padding: 4px 1px; }
.map th:first-child, .map td:first-child { width: 148px; text-align: left; white-space: nowrap; }
.map td { text-align: center; padding: 5px 2px; border: 2px solid var(--lg-bg); line-height: 15px; font-size: 12px; }
.map td:first-child { border-left: 0; }
.map small { display: inline; color: inherit; font-size: 11px; }
.found { background: var(--lg-trusted-t); color: var(--lg-trusted); }
.lost { background: var(--lg-tainted-t); color: var(--lg-tainted); font-weight: 700; }
.far { background: var(--lg-unverified-t); color: var(--lg-ink2); }
.none { color: var(--lg-ink3); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; color: var(--lg-ink2); font-size: 12px; margin: 8px 0 0; }
.legend b { display: inline-block; min-width: 22px; padding: 0 4px; text-align: center; font-weight: 600; }
.numbers td, .numbers th { text-align: right; white-space: nowrap; }
.numbers td:first-child, .numbers th:first-child { text-align: left; }
@media print { .map th { font-size: 8px; } .numbers td, .numbers th { font-size: 10px; padding: 3px; } }
"""
_LEGEND: Final = (
    ("found", "✓3", "inside reach, all found"),
    ("lost", "✗1", "inside reach and not found, or another target missed"),
    ("far", "○1", "outside reach: not found"),
    ("far", "+1", "outside reach and found all the same"),
    ("none", "–", "the fault changed nothing"),
)
_HEADS: Final = (
    ("", ""), ("trials", "trials"), ("inside", ""), ("found", "detected"), ("median", "latency_median"),
    ("worst", "latency_worst"), ("right", "right"), ("wrong", "wrong"), ("nobody", "undecided"), ("windows", ""),
    ("outside", ""), ("no effect", "no_effect"), ("escapes", "escapes"),
)  # fmt: skip
"""What a column is called -> its number in a tally; "" where it is computed."""


def render(document: Document) -> str:
    """Return the picture as a whole HTML page."""
    body = "\n".join([*_top(document), *_map(document["trials"]), *_targets(document), *_rows(document),
                      *_missed(document["trials"])])  # fmt: skip
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{_head()}\n</head>\n<body>\n<main>\n{body}\n</main>\n'
        "</body>\n</html>\n"
    )


def _head() -> str:
    css = files("lastgood_console.export").joinpath("report.css").read_text("utf-8")
    return (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>lastgood drill</title>\n<style>\n{colours()}\n{css}{_CSS}</style>"
    )


def _top(document: Document) -> Iterator[str]:
    about, trials = document["about"], document["trials"]
    facts = f"{about['size']} drill · seed {about['seed']} · {about['ranks']} ranks · version {about['lastgood']}"
    yield f"<header><span><b>lastgood</b> drill</span><span>{e(facts)}</span></header>"
    missed = [target for target in document["targets"] if not target["reached"]]
    words = f"{len(missed)} of {len(document['targets'])} targets missed" if missed else "Every target reached"
    yield f"<h1>{e(words)}</h1>"
    yield (
        f'<p class="hint">{len(trials)} real trainings of a small transformer in {e(about["seconds"])} s on one '
        "machine, faults injected on purpose. The truth is what the ranks saw by means of their own; no check reads it."
        "</p>"
    )


def _map(trials: Trials) -> Iterator[str]:
    """Yield the heat map: sites down, kinds across; what is no cell of it stands in the table of rows."""
    shown = [row for row in ALL_ROWS if any(t["row"] == row for t in trials)]
    if not shown:
        return
    columns = [k for k in (*COLUMNS, BYTE) if any(t["kind"] == k and t["row"] in shown for t in trials)]
    heads = "".join(f'<th scope="col">{e(column)}</th>' for column in columns)
    yield "<h2>Sites and kinds of fault</h2>"
    yield f'<div class="scroll"><table class="map"><thead><tr><th></th>{heads}</tr></thead><tbody>'
    for row in shown:
        inner = "".join(_square([t for t in trials if (t["row"], t["kind"]) == (row, column)]) for column in columns)
        yield f"<tr><td>{e(row)}</td>{inner}</tr>"
    yield "</tbody></table></div>"
    legend = "".join(f'<span><b class="{name}">{mark}</b> {e(words)}</span>' for name, mark, words in _LEGEND)
    yield f'<p class="legend">{legend}</p>'


def _square(trials: Trials) -> str:
    if not trials:
        return "<td></td>"
    count = {result: sum(t["result"] == result for t in trials) for result in ("detected", "beyond", "outside")}
    wrong = sum(bool(t["complaints"]) for t in trials)
    marks = [f"✗{wrong}"] if wrong else []
    marks += [f"✓{count['detected']}"] if count["detected"] else []
    marks += [f"<small>+{count['beyond']}</small>"] if count["beyond"] else []
    marks += [f"<small>○{count['outside']}</small>"] if count["outside"] else []
    style = "lost" if wrong else "found" if count["detected"] else "far" if marks else "none"
    told = "; ".join(f"{t['when']}: {t['result']}{_by(t)}" for t in trials)
    return f'<td class="{style}" title="{e(told)}">{" ".join(marks) or "–"}</td>'


def _by(trial: Mapping[str, Any]) -> str:
    late = "" if trial["latency"] is None else f", {trial['latency']} steps late"
    return f" by {', '.join(trial['checks'])}{late}" if trial["checks"] else ""


def _targets(document: Document) -> Iterator[str]:
    yield "<h2>Targets</h2>"
    yield table("", ("Target", "Met", "Of", ""), map(_target, document["targets"]))


def _target(target: Mapping[str, Any]) -> tuple[str, Iterable[str]]:
    return "", (e(target["name"]), e(target["met"]), e(target["of"]), "✓" if target["reached"] else "✗ missed")


def _rows(document: Document) -> Iterator[str]:
    yield f'<p class="hint">{e(COLUMNS_MEAN)}</p>'
    for title, tallies in (("By site", document["rows"]), ("By kind of fault", document["kinds"])):
        if tallies:
            yield f"<h2>{title}</h2>"
            yield table("numbers", (head for head, _ in _HEADS), (_numbers(n, t) for n, t in tallies.items()))
    clean = [t for t in document["trials"] if t["result"] in ("clean", "alarm")]
    words = f"{len(clean)} jobs without a fault, {document['clean_steps']:,} steps, {sum(t['false'] for t in clean)}"
    yield f"<h2>Controls</h2><p>{e(words)} findings.</p>"


def _numbers(name: str, tally: Mapping[str, Any]) -> tuple[str, Iterable[str]]:
    computed = {
        "": name,
        "inside": tally["detected"] + tally["missed"],
        "windows": f"{tally['windows_right']} of {tally['windows']}",
        "outside": tally["beyond"] + tally["outside"],
    }
    values = [computed.get(head, tally.get(key)) for head, key in _HEADS]
    return "", (e("–" if value is None else f"{value:g}" if isinstance(value, float) else value) for value in values)


def _missed(trials: Trials) -> Iterator[str]:
    listed = [(t["trial"], complaint) for t in trials for complaint in t["complaints"]]
    if listed:
        yield "<h2>What missed a target</h2>"
        yield table("", ("Trial", "What"), (("", (e(name), e(complaint))) for name, complaint in listed))
