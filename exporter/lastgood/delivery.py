"""Send events to the console as they happen, best effort, beside the journal.

The journal is the record; this only makes it quicker (a network file system may show a new file a minute late) and
reaches a console that cannot mount the run directory. So it may lose events and may never slow training down: a
bounded queue whose oldest events go first, one background thread, no retry of what the console refused, and at the
end one second to get the last findings out. The console drops what it has seen (CloudEvents source + id).
"""

from __future__ import annotations

import http.client
import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Final

from lastgood.events import Event
from lastgood.http_address import HttpAddress
from lastgood.http_answer import post

QUEUE_EVENTS: Final = 1000
BATCH_EVENTS: Final = 100
BATCH_BYTES: Final = 1 << 20
"""A finding may name thousands of ranks, and the console takes 4 MiB at once; one event always makes a batch."""
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0


class NoDelivery:
    """Deliver nothing: what runs when no console is configured."""

    dropped = 0
    errors = 0

    def post(self, event: Event) -> None:
        """Do nothing."""

    def close(self, timeout: float = 1.0) -> None:
        """Do nothing."""


class Delivery:
    """Post events to ``<url>/api/events`` from a daemon thread.

    ``timeout`` (seconds) bounds each post, its answer included. ``on_error(exc)`` is called from that thread for every
    failed post; ``errors`` counts them, ``dropped`` counts the events that were given up. Raises :class:`ConfigError`
    for a URL that is not http or https.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = 1.0,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._target = Target(url, token, timeout)
        self._on_error = on_error
        self.dropped = self.errors = 0
        self._queue: deque[Event] = deque()
        self._changed = Condition()
        self._deadline: float | None = None
        self._thread = Thread(target=self._work, name="lastgood-delivery", daemon=True)
        self._thread.start()

    def post(self, event: Event) -> None:
        """Queue an event and return at once; when the queue is full the oldest event is dropped."""
        with self._changed:
            self._queue.append(event)
            if len(self._queue) > QUEUE_EVENTS:
                self._queue.popleft()
                self.dropped += 1
            self._changed.notify()

    def close(self, timeout: float = 1.0) -> None:
        """Send what is queued, for at most ``timeout`` seconds, then return; what is left is dropped."""
        with self._changed:
            self._deadline = time.monotonic() + timeout
            self._changed.notify()
        self._thread.join(timeout)

    def _work(self) -> None:
        pause = 0.0
        while batch := self._next(pause):
            try:
                self._target.post(batch, self._budget())
                pause = 0.0
            except Refused as problem:
                self._failed(problem, len(batch))
            except (OSError, http.client.HTTPException, ValueError) as problem:
                self._failed(problem, 0)
                self._put_back(batch)
                pause = min(max(2 * pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
                if self._deadline is not None:
                    return

    def _next(self, pause: float) -> list[Event]:
        """Wait until the pause is over and there are events; return the next batch, or nothing when it is the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._deadline is not None, pause)
            self._changed.wait_for(lambda: self._queue or self._deadline is not None)
            if self._budget() <= 0:
                return []
            return self._batch()

    def _batch(self) -> list[Event]:
        batch: list[Event] = []
        size = 0
        while self._queue and len(batch) < BATCH_EVENTS:
            size += len(self._queue[0].to_line())
            if batch and size > BATCH_BYTES:
                break
            batch.append(self._queue.popleft())
        return batch

    def _budget(self) -> float:
        """Return the seconds that the next post may take."""
        left = float("inf") if self._deadline is None else self._deadline - time.monotonic()
        return min(self._target.timeout, left)

    def _put_back(self, batch: list[Event]) -> None:
        with self._changed:
            self._queue.extendleft(reversed(batch))
            while len(self._queue) > QUEUE_EVENTS:
                self._queue.popleft()
                self.dropped += 1

    def _failed(self, problem: BaseException, lost: int) -> None:
        self.errors += 1
        self.dropped += lost
        if self._on_error:
            with suppress(Exception):
                self._on_error(problem)


class Refused(Exception):
    """The console answered, and will not take these events later either (a 4xx status)."""


class Target:
    """Where events go."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        self.address = HttpAddress(url, "console URL", "http://console.example:8490 (LASTGOOD_CONSOLE_URL)")
        self._path = f"{self.address.path.rstrip('/')}/api/events"
        self._headers = {"Content-Type": "application/cloudevents-batch+json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self.timeout = timeout

    def post(self, events: list[Event], timeout: float) -> None:
        """Post one batch. Raises :class:`Refused`, ``OSError`` or ``HTTPException``."""
        body = json.dumps([event.to_dict() for event in events], separators=(",", ":")).encode()
        seconds = max(timeout, 0.01)
        connection = self.address.connection(seconds)
        try:
            answer = post(connection, self._path, body, self._headers, seconds=seconds, text_bytes=1000)
        finally:
            connection.close()
        if 400 <= answer.status < 500 and answer.status not in (408, 429):
            raise Refused(f"the console refused {len(events)} events with status {answer.status}: {answer.text}")
        if answer.status != 200:
            raise OSError(f"the console answered with status {answer.status}: {answer.text}")
