"""Show and export incidents: ``lastgood incidents`` and ``lastgood export``. Work from the lean install."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lastgood import wording
from lastgood.state import Incident, RunState
from lastgood_console.characters import one_line
from lastgood_console.export import document
from lastgood_console.export.formats import FORMATS, render
from lastgood_console.export.origin import none_in_doubt
from lastgood_console.run_selection import (
    RUN_HELP,
    SelectionError,
    add_state_option,
    load_run,
    load_runs,
    say,
    select_incident,
    warn_unreadable,
)

MOST_BYTES = 64 << 20
"""Of a document to read; one of a run of 54 days has less than one MiB."""


def list_incidents(arguments: list[str]) -> int:
    """Print the incidents of the runs. Returns 0, or 1 while one is open."""
    parser = argparse.ArgumentParser(
        prog="lastgood incidents",
        description="Print each incident in plain words. The exit code is 1 while an incident is open.",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=RUN_HELP)
    add_state_option(parser)
    options = parser.parse_args(arguments)
    runs = load_runs(options.run, options.state)
    for state in runs.values():
        warn_unreadable(state.unreadable)
    for number, state in enumerate(runs.values()):
        for line in ([""] if number else []) + [*run_lines(state)]:
            say(line)
    open_ones = [i for state in runs.values() for i in state.incidents if i.state in {"open", "reopened"}]
    return 1 if open_ones else 0


def run_lines(state: RunState) -> Iterator[str]:
    """Yield what a terminal says about a run's incidents, newest first."""
    count = len(state.incidents)
    yield f"{state.run} · {count or 'no'} incident{'' if count == 1 else 's'} · times in UTC"
    if not count:
        yield f"  {healthy_text(state)}"
    for incident in state.incidents:
        yield ""
        yield from incident_lines(incident)


def healthy_text(state: RunState) -> str:
    """Say what no incident means: how far the checks looked, or that one does not."""
    off = [c for c in state.checks if c.check == "replay" and not c.running]
    if off:
        return f"No finding, but replay does not run ({off[0].reason}): a wrong gradient would not be seen."
    step = state.attempt.last_step if state.attempt else 0
    passed = [c.last_pass_step for c in state.checks if c.check == "replay" and c.last_pass_step >= 0]
    ago = f"Replay last passed {wording.steps_text(max(0, step - passed[0]))} ago." if passed else ""
    return f"No finding in {wording.steps_text(step)}. {ago or 'Replay has never passed.'}"


def incident_lines(incident: Incident) -> Iterator[str]:
    """Yield an incident in plain words: verdict, headline, what to do, why, against, unknown."""
    facts = (wording.scope_phrase(incident), f"confidence {incident.confidence}", wording.nature_phrase(incident))
    symbol = wording.STATUS_SYMBOLS[incident.status]
    yield f"{symbol} {wording.status_word(incident)} {' · '.join(fact for fact in facts if fact)}"
    yield f"  {wording.headline(incident)}"
    known = wording.date_text(incident.opened_at)
    yield f"  {'incident':<12} {incident.id} · {wording.state_phrase(incident)} · known since {known}"
    yield f"  {'resume from':<12} {_resume_text(incident)}"
    covered = ", ".join(path for _, _, path in incident.covered[:4])
    more = f" and {len(incident.covered) - 4} more" if len(incident.covered) > 4 else ""
    yield f"  {'do not use':<12} {covered + more or f'nothing: {_none_covered(incident)}'}"
    yield f"  {'window':<12} {wording.window_text(incident.window)}"
    for name, texts in (
        ("why", incident.reasons_for),
        ("against", incident.reasons_against),
        ("unknown", incident.unknown),
    ):
        yield f"  {name:<12} {' '.join(texts) or wording.NOTHING_KNOWN}"
    yield from _said_lines(incident)
    for number, (words, command) in enumerate(wording.advice(incident), 1):
        yield f"  {'do' if number == 1 else '':<12} {number} {words}" + (f": {command}" if command else "")


def _none_covered(incident: Incident) -> str:
    contained = incident.window is not None and incident.window.contained
    return none_in_doubt(incident.status, incident.state, contained)


def _said_lines(incident: Incident) -> Iterator[str]:
    """Yield who has seen it, and what the cause was, when somebody said so."""
    for name, word in (("seen by", incident.acknowledged), ("cause", incident.cause)):
        if word is not None:
            said = f"{one_line(word.text)} ({one_line(word.by)})" if word.text else one_line(word.by)
            yield f"  {name:<12} {said}, {wording.date_text(word.at)}"


def _resume_text(incident: Incident) -> str:
    resume = incident.resume
    if wording.skipped(incident):
        return f"{wording.NOT_NEEDED}: {wording.not_needed(resume)}"
    if resume is None or not resume.exists:
        return "nothing"
    symbol = wording.TRUST_SYMBOLS[resume.trust]
    return f"{wording.resume_headline(resume)}, {resume.trust} {symbol} {resume.path}: {resume.reason}"


def export(arguments: list[str]) -> int:
    """Write one incident in one of the formats to standard output or a file. Returns 0."""
    parser = argparse.ArgumentParser(
        prog="lastgood export",
        description="Write one incident: as JSON with a published schema, as its timeline in CSV, as the draft of a "
        "post-mortem in Markdown, or as one offline HTML report.",
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=RUN_HELP.partition(";")[0])
    parser.add_argument(
        "incident", nargs="?", metavar="INCIDENT", help="its id or the beginning of it; default: the newest open one"
    )
    parser.add_argument("--format", choices=[*FORMATS], default="json", help="default: %(default)s")
    parser.add_argument(
        "--from", dest="source", metavar="FILE", help="an incident exported as JSON, instead of a run; - reads it in"
    )
    parser.add_argument("--output", type=_file, metavar="FILE", help="default: standard output")
    add_state_option(parser)
    options = parser.parse_args(arguments)
    if (options.run is None) == (options.source is None):
        parser.error("give either RUN or --from FILE")
    content = _of_run(options) if options.source is None else _of_file(options.source)
    write(render(content, options.format), options.output)
    return 0


def _file(text: str) -> Path:
    path = Path(text)
    if not path.name:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a file")
    return path


def _of_run(options: argparse.Namespace) -> document.Document:
    state = load_run(options.run, options.state)
    warn_unreadable(state.unreadable)
    return document.to_document(state, select_incident(state, options.incident))


def _of_file(source: str) -> document.Document:
    """Read an exported document, from standard input when it is called ``-``."""
    try:
        with sys.stdin.buffer if source == "-" else Path(source).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise SelectionError(
                f"{source} is longer than {MOST_BYTES >> 20} MiB: no incident is; give its JSON export"
            )
        return document.loads(content.decode("utf-8-sig"))  # some editors and shells put a mark first
    except OSError as problem:
        raise SelectionError(
            f"cannot read {source} ({problem.strerror}): give the JSON export of an incident"
        ) from None
    except UnicodeDecodeError:
        raise SelectionError(f"{source} is not UTF-8: give the JSON export of an incident") from None
    except document.DocumentError as problem:
        raise SelectionError(f"{source}: {problem}") from None


def write(text: str, output: Path | None) -> None:
    """Write text as UTF-8 to a file, whole or not at all, or to standard output."""
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        return
    part = output.with_name(f".{output.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(output)
    except OSError as problem:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise SelectionError(f"cannot write {output} ({problem.strerror}): give another --output") from None
    print(f"wrote {output}", file=sys.stderr)
