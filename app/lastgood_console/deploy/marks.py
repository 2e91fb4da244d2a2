"""Turn the findings and saves of a run into Grafana annotations: marks on every dashboard that asks for their tags.

Grafana knows annotations by a number of its own, so each of ours carries a tag ``lastgood_id:<hash>`` that follows from
what happened. That is how a second deployment finds them again. The text holds only what does not change later: the
trust of a checkpoint does, and is on the checkpoints dashboard. Pure: no network, no clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from html import escape
from typing import Any, Final
from urllib.parse import urlencode

from lastgood import wording
from lastgood.events import timestamp_of
from lastgood.state import Checkpoint, FailedSave, Finding, RunState

TAG: Final = "lastgood"
ID_PREFIX: Final = "lastgood_id:"
MOST_PER_RUN: Final = 2_000
"""The newest of them; a run of months has more saves than a dashboard can show."""

Json = dict[str, Any]


def marks_of(state: RunState, console_url: str) -> list[Json]:
    """Return the annotations of a run, oldest first. ``time`` and ``timeEnd`` are Unix milliseconds."""
    found = sorted(_all(state, console_url), key=lambda item: (item["time"], item["tags"][-1]))
    return found[-MOST_PER_RUN:]


def id_of(annotation: Json) -> str | None:
    """Return the identity that an annotation carries; None when it is not one of ours."""
    return next((tag for tag in annotation.get("tags") or [] if tag.startswith(ID_PREFIX)), None)


def run_tag(run: str) -> str:
    """Return the tag that all annotations of a run have."""
    return f"run:{run}"


def _all(state: RunState, console_url: str) -> Iterator[Json]:
    for finding in state.findings:
        yield _mark(state.run, "finding", finding.at, _finding_text(state, finding, console_url),
                    "finding", finding.attempt, finding.id)  # fmt: skip
    for save in state.checkpoints:
        yield _mark(state.run, "save", save.saved_at, _save_text(save), "save", save.attempt, save.step, save.path)
    for failed in state.failed_saves:
        yield _mark(state.run, "save-failed", failed.at, _failed_text(failed), "failed", failed.attempt, failed.step,
                    failed.path, failed.at)  # fmt: skip


def _mark(run: str, kind: str, at: str, text: str, *identity: object) -> Json:
    digest = hashlib.sha256(repr((run, *identity)).encode()).hexdigest()[:16]
    time = round(timestamp_of(at) * 1000)
    return {"time": time, "timeEnd": time, "text": text, "tags": [TAG, run_tag(run), kind, f"{ID_PREFIX}{digest}"]}


def _finding_text(state: RunState, finding: Finding, console_url: str) -> str:
    who = wording.joined([wording.rank_text(place) for place in finding.places[:8]]) or "no rank named"
    text = escape(f"{finding.check} failed at step {finding.step}: {who}")
    about = next((i for i in state.incidents if any(f.id == finding.id for f in i.findings)), None)
    if about is None:
        return text
    link = f"{console_url}/incident?{urlencode({'run': state.run, 'incident': about.id})}"
    return f'{text} <a href="{escape(link)}">incident {escape(about.id)}</a>'


def _save_text(save: Checkpoint) -> str:
    return escape(f"checkpoint saved at step {save.step}, attempt {save.attempt}: {save.path}")


def _failed_text(save: FailedSave) -> str:
    how = "refused by a check" if save.reason == "integrity" else f"failed ({save.reason})"
    return escape(f"save {how} at step {save.step}, attempt {save.attempt}: {save.path}")
