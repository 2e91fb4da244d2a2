"""Hold the digest of a run's events: the same as of all their lines, and only new ones are written out."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import pytest

from lastgood import event_digest
from lastgood.event_digest import RunningDigest, digest_of
from lastgood.events import Event


def events(count: int) -> list[Event]:
    return [
        Event(f"n-{n}", "/lastgood/r/1", "note", f"2026-11-29T02:00:00.{n:06}Z", "r", 1, {"text": f"{n} ü \ud800"})
        for n in range(count)
    ]


def plain(found: Sequence[Event]) -> str:
    lines = "".join(event.to_line() + "\n" for event in found)
    return hashlib.sha256(lines.encode(errors="backslashreplace")).hexdigest()


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9, 23])
def test_it_is_the_digest_of_all_lines(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(event_digest, "STRIDE", 4)
    assert digest_of(events(count)) == plain(events(count))


@pytest.mark.parametrize("seed", range(20))
def test_events_may_come_at_any_place_change_and_go(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(event_digest, "STRIDE", 4)
    chance, known, running = random.Random(seed), events(60), RunningDigest()
    chosen: list[Event] = []
    for _ in range(40):
        number = chance.choice((len(chosen), chance.randint(0, len(chosen))))
        if chance.random() < 0.7:
            chosen.insert(number, chance.choice(known))
        else:
            del chosen[number:]
        assert running.of(list(chosen)) == plain(chosen)


def test_only_what_is_new_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found, running = events(5_000), RunningDigest()
    written: list[str] = []
    to_line = Event.to_line

    def counted(self: Event) -> str:
        written.append(self.id)
        return to_line(self)

    monkeypatch.setattr(Event, "to_line", counted)
    running.of(found[:-1])
    assert len(written) == 4_999
    written.clear()
    running.of(found)
    assert "n-4999" in written
    assert len(written) <= event_digest.STRIDE
