"""Write a whole run: attempts, interruptions, faults, sensors, people and alerts, from one seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final

from fleet_run import said
from fleet_run.causes import CORRUPTION, DAY_SECONDS, DAYS, PLANNED, Cause, Interruption, plan
from fleet_run.cluster import Cluster
from fleet_run.corruption import KINDS, NO_PROBE, PERIOD, Kind, Reporter, last_step
from fleet_run.training import STEP_SECONDS, Training
from lastgood.events import Event, utc
from lastgood.ledger import default_state_dir
from lastgood.state import Place

RUN: Final = "llama-405b"
END: Final = datetime(2026, 11, 30, tzinfo=UTC).timestamp()
BAD_BATCHES_A_DAY: Final = 0.25
EXCURSIONS_A_DAY: Final = 4.0
REORDER: Final = 0.04
"""The share of restarts at which the launcher orders the ranks by node again."""
KEPT_DAYS: Final = 2.0
LEAST_DAYS: Final = 0.5
UNSETTLED_SECONDS: Final = 2700.0
"""So long before the end something is found that nobody can settle, and that stays open."""


def write_fleet_run(
    folder: Path, *, ranks: int = 16_384, days: float = DAYS, seed: int = 1, end: float = END, run: str = RUN
) -> Path:
    """Write a run of so many ranks (a multiple of 8) and days into ``folder / run`` and return that.

    It is still running at ``end`` (unix seconds) and has one open incident. The same arguments give the same bytes.
    Raises ``ValueError`` for less than half a day: there is no room for what happens.
    """
    if days < LEAST_DAYS:
        raise ValueError(f"{days} days: at least {LEAST_DAYS} are needed")
    run_dir = Path(folder) / run
    run_dir.mkdir(parents=True)
    story = Story(run_dir, ranks, days, seed, end)
    story.tell()
    _keep_some(run_dir, story.training.saved_at, end)
    said.write_words(run_dir, run, story.findings, end)
    said.post_alerts(run_dir, default_state_dir([Path(folder)]), story.alerts(), end)
    return run_dir


@dataclass
class Story:
    """What happens to a run, in the order of its time."""

    run_dir: Path
    ranks: int
    days: float
    seed: int
    end: float
    training: Training = field(init=False)
    findings: list[Event] = field(default_factory=list)  # finding and verdict events, copies of rank 0

    def __post_init__(self) -> None:
        cluster = Cluster(self.ranks, self.seed)
        self._begin = self.end - self.days * DAY_SECONDS
        name = self.run_dir.name
        self.training = Training(self.run_dir, name, cluster, Random(f"training {self.seed}"), self._begin)
        self.training.at_step = self._happens
        self._chance = Random(f"story {self.seed}")
        self._kinds = cycle(KINDS)
        self._excursions = 0
        self._started: list[float] = []
        self._silences: list[tuple[float, float, int]] = []
        self._hot: list[tuple[Place, float, float]] = []

    def tell(self) -> None:
        """Train from the beginning to the end."""
        t = self.training
        t.start()
        for interruption in plan(self.days, Random(f"plan {self.seed}")):
            self._interrupt(interruption)
        self._last_attempt()

    def _interrupt(self, interruption: Interruption) -> None:
        """Run an attempt to its interruption and start the next one."""
        t, cause = self.training, interruption.cause
        at = self._begin + interruption.at
        place = self._chance.choice(t.places)
        steps = max(1, int((at - t.now) / STEP_SECONDS))
        if cause is CORRUPTION:
            self._corrupt(next(self._kinds), place, t.from_step + steps)
        else:
            t.train(t.from_step + steps)
            self._signs(cause, place)
            t.now = max(t.now, at)
            t.end(cause.ended)
        if cause is PLANNED:
            t.resume_from(t.step)
        if cause.node:
            t.cluster.replace(place, t.now, cause.device)
        if self._chance.random() < REORDER:
            t.cluster.reorder()
        ended, t.now = t.now, t.now + interruption.down
        if cause.ended is None:
            self._silences.append((ended, t.now, t.step))
        self._started.append(t.now)
        t.start(cause, interruption.down, [place.node] if cause.node else [])

    def _corrupt(self, kind: Kind, place: Place, step: int) -> None:
        t = self.training
        at = last_step(kind, max(step, t.from_step + 2))
        hidden = kind in ("persistent", "transient")
        if hidden:
            t.train(max(t.from_step + 1, at - 199))
            t.probe_fails = NO_PROBE.format(place.rank)
        t.train(at - 1)
        t.step, t.now = at, t.now + STEP_SECONDS
        if kind != "reduce":
            t.round("replica", "loop", at - 1) if at % 50 == 0 else None
        events = Reporter(t, place.rank).report(kind)
        self.findings += events
        t.probe_fails = ""
        t.end("integrity")
        t.resume_from(events[-1].data["resume"]["step"])

    def _last_attempt(self) -> None:
        """Train to the end; shortly before it a replay is not settled, and does not reproduce itself."""
        t = self.training
        steps = int((self.end - UNSETTLED_SECONDS - t.now) / STEP_SECONDS)
        at = last_step("undecided", t.from_step + max(2, steps - PERIOD))
        t.train(at - 1)
        t.step, t.now = at, t.now + STEP_SECONDS
        self.findings += Reporter(t, self._chance.choice(t.places).rank).report("undecided")
        t.train(t.step + max(0, int((self.end - t.now) / STEP_SECONDS) - 2))
        for writer in t._writers.values():
            writer.close()

    def alerts(self) -> list[said.Alert]:
        """Return the alerts that all this set off."""
        run = self.run_dir.name
        found = said.found_alerts(run, self.findings, self._started)
        return [*found, *said.vanished_alerts(run, self._silences), *said.hot_alerts(run, self._hot)]

    # --- what happens beside ------------------------------------------------------------------------------------------

    def _happens(self) -> None:
        """Let a bad batch or an excursion come by, at a step that writes anything (one in 30 seconds)."""
        a_step = 30.0 / DAY_SECONDS
        draw = self._chance.random()
        t = self.training
        if draw < BAD_BATCHES_A_DAY * a_step:
            self.findings += Reporter(t, self._chance.randrange(self.ranks)).bad_batch()
        elif draw < (BAD_BATCHES_A_DAY + EXCURSIONS_A_DAY) * a_step:
            self._excursion("thermal_margin", self._chance.choice(t.places), minutes=self._chance.uniform(2, 20))

    def _signs(self, cause: Cause, place: Place) -> None:
        """Let the sensors see what some causes look like."""
        if "memory" in cause.name and cause.device:
            self._excursion("uncorrected_ecc", place)
        elif "thermal" in cause.name:
            self._excursion("thermal_margin", place, minutes=3)

    def _excursion(self, nature: str, place: Place, minutes: float = 0.0) -> None:
        """Journal an excursion on the rank that it is about, both lines at its end."""
        t, hot = self.training, nature == "thermal_margin"
        self._excursions += 1
        value = round(self._chance.uniform(1, 4), 2) if hot else 1.0
        left = f"{value:.0f} °C left before it slows itself down (limit 5 °C)"
        data: dict[str, Any] = {
            "excursion": f"{nature}-{place.rank}-{self._excursions}", "nature": nature,
            "sensor": "margin" if hot else "ecc", "value": value, "limit": 5.0 if hot else 0.0,
            "unit": "celsius" if hot else "errors", "started": utc(t.now - 60 * minutes), "kept_back": 0,
            "rank": place.rank, "node": place.node, "gpu_uuid": place.gpu_uuid, "slot": place.slot,
            "text": f"rank {place.rank} ({place.node}): {left if hot else '1 new uncorrectable memory error'}",
        }  # fmt: skip
        if hot:
            self._hot.append((place, t.now - 60 * minutes, t.now))
        writer = t.writer(place.rank)
        for state in ("started", "ended") if hot else ("ended",):
            ended = utc(t.now) if state == "ended" else None
            writer.write("device.excursion", data | {"state": state, "ended": ended}, step=t.step)


def _keep_some(run_dir: Path, saved_at: dict[str, float], end: float) -> None:
    """Leave the checkpoints of the last days on disk, and the first of each day; the others were rotated away."""
    (run_dir / "checkpoints").mkdir()
    days: set[int] = set()
    for path, at in saved_at.items():
        day = int((end - at) // DAY_SECONDS)
        if day not in days or at > end - KEPT_DAYS * DAY_SECONDS:
            days.add(day)
            (run_dir / path).write_bytes(b"weights\n")
