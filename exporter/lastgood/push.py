"""Push the metrics of a rank by Prometheus remote write, for a cluster whose Prometheus cannot reach the ranks.

The loop takes a copy of the values when a step ends and goes on; a daemon thread renders, packs and sends them. What
a receiver cannot take now waits in a bounded buffer whose oldest moment goes first, with back-off; what it refuses is
lost at once. Every lost moment is counted in ``exporter_errors_total{part="delivery"}``; a try that a later one makes
good is no loss and is not counted.

Which time a sample carries:

- a step's values: when that step ended, as ``step_timestamp_seconds`` says it; at most one step per interval, and the
  last step always;
- while no step ends (the first one, an evaluation, a save, a hang): the values again every 30 seconds, with the
  present time. Otherwise a receiver would forget the rank within five minutes, and with it the deadline that a stalled
  rank has missed;
- what changed after the last step (a check that failed): when the attempt ended.

Then every series is ended by a stale marker, so that it is gone at once. A rank that is killed ends nothing: its
series stay for the five minutes that Prometheus looks back.

A message holds one moment. So a message that a receiver took, but whose answer was lost, can be sent again: to
Prometheus the same value at the newest time is no error, an older time is. No library for this fits: the maintained
OpenTelemetry exporter stamps all values with the time of its own collection, writes no stale markers, and brings its
SDK and protobuf into the training image.
"""

from __future__ import annotations

import http.client
import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Final, Protocol

from prometheus_client import Metric as Family

from lastgood._version import __version__
from lastgood.config import Config
from lastgood.push_receiver import Receiver, Refused, TryLater
from lastgood.push_wire import STALE, Row, number, packer, request, series
from lastgood.rank_metrics import Frozen

JOB: Final = "lastgood"
BUFFER_MOMENTS: Final = 360
"""An hour at the default interval; older samples than that Prometheus may refuse after it was away."""
REPEAT_SECONDS: Final = 30.0
END_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 10.0
"""For a message and the whole of its answer, however many pieces that comes in."""
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_LONGEST_WISH_SECONDS: Final = 300.0
_SAID_AGAIN_SECONDS: Final = 3600.0

log = logging.getLogger("lastgood")


class Source(Protocol):
    """What is pushed: see :class:`lastgood.rank_metrics.RankMetrics`."""

    def freeze(self) -> Frozen:
        """Return a copy of all values."""

    def families(self, frozen: Frozen) -> Iterator[Family]:
        """Return the families with these values."""


class NoPush:
    """Push nothing: what runs when no receiver is set."""

    sent = lost = 0

    def step(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def close(self, timeout: float = END_SECONDS) -> None:
        """Do nothing."""


def pusher_for(config: Config, source: Source, instance: str, on_error: Callable[[str], object]) -> Pusher | NoPush:
    """Return what pushes a rank's metrics as its settings say. A missing extra is one warning; training goes on."""
    if not config.push_url:
        return NoPush()
    receiver = Receiver(
        config.push_url, token=config.push_token, basic_auth=config.push_basic_auth, version=__version__
    )
    try:
        pack = packer()
    except ImportError:
        log.warning("cannot push metrics: pip install 'lastgood[push]'. Training goes on without.")
        on_error("delivery")
        return NoPush()
    seconds = config.push_seconds
    return Pusher(
        receiver, source, pack, instance=instance, interval=seconds, spread=min(seconds / 10, 1.0), on_error=on_error
    )


@dataclass(frozen=True, slots=True)
class Moment:
    """Values and the time they carry, Unix milliseconds. ``last``: only what changed, then the end of all series."""

    at: int
    values: Frozen
    last: bool = False


class Pusher:
    """Push one rank's metrics. ``sent`` and ``lost`` count samples; stale markers are not among them.

    ``instance`` is the rank's own label, the same in every attempt. ``interval``, ``repeat`` and ``spread`` (the
    longest wait before a moment is sent) are seconds; ``clock`` returns Unix seconds. ``on_error("delivery")`` is
    called once for every moment that is lost.
    """

    def __init__(
        self,
        receiver: Receiver,
        source: Source,
        pack: Callable[[bytes], bytes],
        *,
        instance: str,
        interval: float = 10.0,
        repeat: float = REPEAT_SECONDS,
        spread: float = 0.0,
        buffer: int = BUFFER_MOMENTS,
        on_error: Callable[[str], object] = lambda part: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.sent = self.lost = 0
        self._receiver, self._source, self._pack = receiver, source, pack
        self._target = {"job": JOB, "instance": instance}
        self._interval, self._repeat, self._spread, self._buffer = interval, repeat, spread, buffer
        self._on_error, self._clock = on_error, clock
        self._changed = Condition()
        self._queue: deque[Moment] = deque()
        self._unsent_step: Frozen | None = None  # the newest step, when the interval left it out
        self._newest = 0  # time of the newest moment, Unix milliseconds
        self._in_hand = 0  # samples of the message that is being sent
        self._deadline: float | None = None
        self._given_up = False
        self._written: dict[bytes, bytes] = {}  # series -> value, as last rendered
        self._said: dict[type[Exception], float] = {}
        self._process = os.getpid()
        self._thread = Thread(target=self._work, name="lastgood-push", daemon=True)
        self._thread.start()

    # --- the training's side: nothing here waits ---------------------------------------------------------------------

    def step(self) -> None:
        """Take the values of the step that has just ended."""
        if os.getpid() != self._process:
            return
        values = self._source.freeze()
        at = _milliseconds(values.step_ended_at)
        with self._changed:
            if abs(at - self._newest) >= 1000 * self._interval:
                self._append(at, values)
                self._unsent_step = None
            else:
                self._unsent_step = values

    def end(self) -> None:
        """Begin to send what is left and to end all series, within a second; do not wait for it."""
        if os.getpid() != self._process:
            return
        values = self._source.freeze()
        with self._changed:
            if self._deadline is not None:
                return
            if self._unsent_step is not None:
                self._append(_milliseconds(self._unsent_step.step_ended_at), self._unsent_step)
            self._append(_milliseconds(self._clock()), values, last=True)
            self._deadline = time.monotonic() + END_SECONDS

    def close(self, timeout: float = END_SECONDS) -> None:
        """End (see :meth:`end`) and wait for it, for at most ``timeout`` seconds. May be called twice."""
        if os.getpid() != self._process:  # a forked data-loader worker: the series are its parent's
            return
        self.end()
        self._thread.join(timeout)
        with self._changed:
            first, self._given_up = not self._given_up, True
            if first:
                self._lose(self._in_hand, *(len(moment.values) for moment in self._queue if not moment.last))
        if first and self.lost:
            taken = self.sent + self.lost
            log.warning("%d of %d samples did not reach %s", self.lost, taken, self._receiver.shown)

    def _append(self, at: int, values: Frozen, last: bool = False) -> None:
        """Queue a moment (with the lock), never older than the one before, also where the clock was set back."""
        if self._deadline is not None:
            return
        self._newest = max(at, self._newest + 1)
        self._queue.append(Moment(self._newest, values, last))
        if len(self._queue) > self._buffer:
            self._lose(len(self._queue.popleft().values))
        self._changed.notify()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            going_on = True
            while going_on and (moment := self._next()) is not None:
                rows, samples = self._rows(moment)
                going_on = self._send(self._pack(request(rows)), samples)
        except Exception as problem:
            log.warning("pushing metrics has ended: %r. Training goes on.", problem)
        finally:
            self._receiver.rest()

    def _next(self) -> Moment | None:
        """Return the next moment, or None when all is sent or the time for it is over."""
        with self._changed:
            if not self._queue and self._deadline is None:
                self._await_next()
            if not self._queue or self._over():
                return None
            moment = self._queue.popleft()
            self._in_hand = 0 if moment.last else len(moment.values)
            return moment

    def _await_next(self) -> None:
        """Wait until there is a moment, or the end (with the lock). Nothing new for long: take the values as they are.

        Meanwhile the connection is closed: by default Prometheus takes 512 at once. And because the ranks of a job end
        their steps together, each waits for a moment of its own.
        """
        self._receiver.rest()
        self._changed.wait_for(lambda: self._queue or self._deadline is not None, self._repeat)
        if not self._queue and self._deadline is None:
            self._append(_milliseconds(self._clock()), self._source.freeze())
        self._changed.wait_for(lambda: self._deadline is not None, random.random() * self._spread)

    def _rows(self, moment: Moment) -> tuple[list[Row], int]:
        """Return what to write for a moment, and how many of it are samples, the rest being stale markers."""
        values = {
            series(sample.name, {**sample.labels, **self._target}): number(sample.value)
            for family in self._source.families(moment.values)
            for sample in family.samples
        }
        before, self._written = self._written, values
        rows = [(key, v, moment.at) for key, v in values.items() if not moment.last or before.get(key) != v]
        ended = before.keys() | values.keys() if moment.last else before.keys() - values.keys()
        return rows + [(key, STALE, moment.at + moment.last) for key in ended], len(rows)

    def _send(self, body: bytes, samples: int) -> bool:
        """Send one message until it is taken or refused. False: it could not be sent, and the end has come."""
        self._in_hand, pause = samples, 0.0
        while True:
            ending = self._deadline is not None
            try:
                self._receiver.send(body, self._budget())
                return self._settle(samples, sent=True)
            except Refused as problem:
                self._say(problem, "These samples are lost.")
                return self._settle(samples, sent=False)
            except (OSError, http.client.HTTPException) as problem:
                self._say(problem, f"Up to {self._buffer} steps are kept and sent later. Training goes on.")
                pause = next_pause(pause, problem, random.random())
            with self._changed:
                if ending or self._over():
                    return False
                self._changed.wait_for(lambda: self._deadline is not None, pause)

    def _settle(self, samples: int, sent: bool) -> bool:
        with self._changed:
            if self._given_up:  # already counted as lost
                return False
            self._in_hand = 0
            if sent:
                self.sent += samples
            else:
                self._lose(samples)
        return True

    def _lose(self, *moments: int) -> None:
        """Count lost moments, each given by its samples (with the lock)."""
        for samples in filter(None, moments):
            self.lost += samples
            self._on_error("delivery")

    def _over(self) -> bool:
        return self._given_up or self._budget() <= 0

    def _budget(self) -> float:
        """Return the seconds that the next message may take."""
        left = float("inf") if self._deadline is None else self._deadline - time.monotonic()
        return min(ANSWER_SECONDS, left)

    def _say(self, problem: Exception, then: str) -> None:
        """Say what failed, each kind once an hour."""
        kind, now = type(problem), time.monotonic()
        if now - self._said.get(kind, -float("inf")) >= _SAID_AGAIN_SECONDS:
            self._said[kind] = now
            log.warning("cannot push metrics to %s: %s. %s", self._receiver.shown, problem, then)


def next_pause(before: float, problem: Exception, chance: float) -> float:
    """Return the seconds to wait after a failed try: doubling from 1 to 30, and what the receiver asks for.

    ``chance`` (0 to 1) spreads the ranks: with it a pause is between half and all of its length.
    """
    wish = min(problem.after, _LONGEST_WISH_SECONDS) if isinstance(problem, TryLater) else 0.0
    doubled = min(max(2 * before, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
    return max(wish * (1 + chance / 10), doubled * (1 + chance) / 2)


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
