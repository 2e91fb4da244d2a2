"""Judge a finished demo: did lastgood say what is true? Pure.

The truth is the ``injection`` event that the fault injector wrote when it corrupted a real tensor, and what follows
from it by the rules (``expected``). The answer is a list of complaints, one sentence each; none means exit code 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lastgood.state import Checkpoint, Incident, RunState
from lastgood.wording import window_text
from lastgood_console.demo.expected import Expected, expect
from lastgood_console.demo.options import Options

SITES: Final = {"nan": "gradient", "data": "batch"}
"""Fault -> the site the injector journals, where the names differ."""


def complaints(state: RunState, options: Options) -> tuple[str, ...]:
    """Return what did not come out as it must, in sentences; nothing when everything did."""
    expected = expect(options)
    parts = [_injected(state, options), _attempts(state, options, expected), _last_good(state)]
    parts.append(_silent(state) if expected is None else _found(state, options, expected))
    return tuple(complaint for part in parts for complaint in part)


def exit_code(state: RunState, options: Options) -> int:
    """Return 0 when the demo came out as it must, else 1."""
    return 1 if complaints(state, options) else 0


def _injected(state: RunState, options: Options) -> Iterator[str]:
    """Hold the injector to the options: the right place and step, and nothing else."""
    truth = [event for event in state.injections if event.attempt == 1]
    yield from (f"A fault was injected into attempt {e.attempt}." for e in state.injections if e.attempt != 1)
    if options.fault == "none":
        yield from ("A fault was injected although none was asked for." for _ in truth[:1])
        return
    if not truth:
        yield f"The fault {options.fault} was never injected."
        return
    first = min(truth, key=lambda event: int(event.data["step"]))
    yield from _differs("the first injection's step", int(first.data["step"]), options.step)
    yield from _differs("the injected site", str(first.data["site"]), SITES.get(options.fault, options.fault))
    if options.fault != "reduce-all":
        ranks = {int(event.data["rank"]) for event in truth}
        yield from _differs("the injected ranks", sorted(ranks), [options.rank])


def _attempts(state: RunState, options: Options, expected: Expected | None) -> Iterator[str]:
    """Hold the attempts to what must follow the verdict."""
    relaunches = expected is not None and expected.relaunches
    yield from _differs("the number of attempts", len(state.attempts), 2 if relaunches else 1)
    if not state.attempts:
        return
    last = state.attempts[-1]
    stops = expected is not None and expected.end == "open" and expected.status == "undecided"
    yield from _differs("how the last attempt ended", last.end_reason, "integrity" if stops else "completed")
    if not stops:
        yield from _differs("the last step", last.last_step, options.steps)
    if relaunches and len(state.attempts) == 2:
        nodes = {place.node for place in last.places}
        accused = {options.fault_node} if expected and expected.accused else set()
        yield from (f"Attempt 2 ran on {node}, which was accused." for node in sorted(nodes & accused))
        if not accused and nodes != set(options.node_names):
            yield f"Attempt 2 ran on {', '.join(sorted(nodes))}, although no node was accused."


def _last_good(state: RunState) -> Iterator[str]:
    """Hold the advice to the one promise: never a checkpoint that an open window covers."""
    for incident in state.incidents:
        resume = incident.resume
        if resume is not None and (resume.attempt, resume.step, resume.path) in incident.covered:
            yield f"The last good checkpoint {resume.path} lies inside the window."


def _silent(state: RunState) -> Iterator[str]:
    yield from (f"There is a finding of {finding.check} at step {finding.step}." for finding in state.findings)
    yield from (f"Checkpoint {save.path} is {save.trust}." for save in _with_trust(state, "suspect", "tainted"))


def _found(state: RunState, options: Options, expected: Expected) -> Iterator[str]:
    if len(state.incidents) != 1:
        yield f"There are {len(state.incidents)} incidents; one was expected."
        return
    incident = state.incidents[0]
    yield from _verdict(incident, expected)
    yield from _window(incident, options, expected)
    yield from _saves(state, expected)
    yield from _tensor(state, incident, options)
    resume = incident.resume.step if incident.resume is not None and incident.resume.exists else None
    if expected.resume is not None:
        yield from _differs("the step to resume from", resume, expected.resume)
    if expected.relaunches and len(state.attempts) == 2:
        yield from _differs("the step attempt 2 resumed from", state.attempts[1].from_step, expected.resume)
    yield from _differs("the incident's state", incident.state, expected.end)


def _verdict(incident: Incident, expected: Expected) -> Iterator[str]:
    first = incident.findings[0]
    yield from _differs("the check that found it", first.check, expected.check)
    yield from _differs("the step it was found at", first.step, expected.step)
    yield from _differs("the verdict", incident.status, expected.status)
    accused = sorted(s.rank for s in incident.suspects if s.role == "accused")
    candidates = sorted(s.rank for s in incident.suspects if s.role == "candidate")
    yield from _differs("the accused ranks", accused, sorted(expected.accused))
    if expected.status != "suspicious":
        yield from _differs("the candidate ranks", candidates, sorted(expected.candidates))
    if expected.status == "attributed":
        yield from _differs("the scope", incident.scope, "gpu")


def _window(incident: Incident, options: Options, expected: Expected) -> Iterator[str]:
    window = incident.window
    if window is None:
        yield "The incident has no window."
    elif expected.window is None:
        yield from _differs("whether the step was contained", window.contained, expected.contained)
    else:
        start, end = expected.window
        yield from _differs("the window", window_text(window), f"({start}, {end}]")
        if not window.start < options.step <= window.end:
            yield f"The window {window_text(window)} does not contain the fault's step {options.step}."


def _saves(state: RunState, expected: Expected) -> Iterator[str]:
    suspect = [save.step for save in _with_trust(state, "suspect")]
    yield from _differs("the suspect saves", suspect, list(expected.suspect))
    refused = [save.step for save in state.failed_saves if save.reason == "integrity"]
    yield from _differs("the refused saves", refused, [] if expected.refused is None else [expected.refused])


def _tensor(state: RunState, incident: Incident, options: Options) -> Iterator[str]:
    """Hold a flipped bit's finding to the tensor that was flipped, or to the weight that this optimizer state moved."""
    if options.fault not in ("weight", "optimizer") or not state.injections:
        return
    truth = str(state.injections[0].data["tensor"])
    named = (incident.findings[0].tensor or "no tensor").replace("/", ".")
    if options.fault == "weight" or not truth.startswith(f"{named}."):
        yield from _differs("the tensor", named, truth)


def _with_trust(state: RunState, *trust: str) -> Iterable[Checkpoint]:
    return (save for save in state.checkpoints if save.attempt == 1 and save.trust in trust)


def _differs(what: str, actual: object, expected: object) -> Iterator[str]:
    if actual != expected:
        yield f"Expected {what} to be {_words(expected)}; it is {_words(actual)}."


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) if value else "none"
    return "nothing" if value is None else str(value)
