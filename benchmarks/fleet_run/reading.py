"""Measure, in a process of its own, what a ledger needs to read a folder of runs: ``python reading.py FOLDER``.

Prints one JSON object: seconds (by the clock and of the processor) and bytes read of the first refresh, of refreshes
without news, and of one after one more event, which is appended to the newest journal and taken away again. Bytes are
what the kernel handed to this process (``rchar`` of ``/proc/self/io``).
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lastgood.events import Event, source_of
from lastgood.ledger import Ledger, default_state_dir
from lastgood.state import RunState

QUIET_REFRESHES: Final = 5


def measure(folder: Path) -> dict[str, Any]:
    """Return what the refreshes of one ledger took."""
    ledger = Ledger([folder], state_dir=default_state_dir([folder]))
    first = refreshed(ledger)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    quiet = [refreshed(ledger) for _ in range(QUIET_REFRESHES)]
    states = ledger.runs().values()
    with one_more_event(ledger) as line:
        news = refreshed(ledger) | {"new_bytes": line}
    return {
        "first": first,
        "peak_bytes": peak,
        "quiet": {name: statistics.median(q[name] for q in quiet) for name in quiet[0]},
        "quiet_bytes_read": sum(q["bytes_read"] for q in quiet),
        "one_more_event": news,
        "runs": len(states),
        "events": sum(state.event_count for state in states),
        "attempts": sum(len(state.attempts) for state in states),
        "incidents": sum(len(state.incidents) for state in states),
        "unreadable": sum(len(state.unreadable) for state in states),
        "digest": sorted(state.events_digest for state in states),
    }


def refreshed(ledger: Ledger) -> dict[str, float]:
    """Refresh a ledger, and return what that took."""
    before, wall, processor = _bytes_read(), time.perf_counter(), time.process_time()
    ledger.refresh()
    seconds = {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}
    return seconds | {"bytes_read": _bytes_read()[0] - sum(before)}


def _bytes_read() -> tuple[int, int]:
    """Return how many bytes this process has read so far, and how many this answer had itself, counted next time."""
    text = Path("/proc/self/io").read_text()
    return int(text.split()[1]), len(text)


@contextmanager
def one_more_event(ledger: Ledger) -> Iterator[int]:
    """Append a round to the newest journal of the first run, yield its length in bytes, and take it away again."""
    name, state = next(iter(ledger.runs().items()))
    run_dir = ledger.path_of(name)
    assert run_dir is not None
    path = sorted((run_dir / "journal").glob("[0-9]*/rank-00000.jsonl"))[-1]
    size = path.stat().st_size
    line = _round(state).to_line().encode() + b"\n"
    with open(path, "ab") as journal:
        journal.write(line)
    try:
        yield len(line)
    finally:
        os.truncate(path, size)


def _round(state: RunState) -> Event:
    last = state.rounds[-1]
    data = {
        "check": "replica",
        "phase": "loop",
        "state_step": last.step,
        "result": "passed",
        "reason": "",
        "exceptions": [],
    }
    source = source_of(state.run, last.attempt, 0)
    return Event(
        "rank-00000-more", source, "check", state.last_event_at, state.run, last.attempt, data, 0, step=last.step + 1
    )


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
