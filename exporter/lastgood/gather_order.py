"""Remember in which order FSDP2 gathers its groups in a micro-batch, so that a rank can take part in the rest of it."""

from __future__ import annotations


class GatherOrder:
    """The gathers of a micro-batch, forward and backward, as places of groups; the same on every rank."""

    def __init__(self) -> None:
        self.replays = False
        """Whether what is gathered now belongs to a replay."""
        self.usual: tuple[int, ...] = ()
        self._now: list[int] = []
        self._open = False

    def begin(self) -> None:
        """Begin a micro-batch of the training."""
        self._now, self._open = [], True

    def add(self, place: int) -> None:
        """Note a gather."""
        self._now.append(place)

    def end(self) -> None:
        """End a micro-batch: its order is the usual one from now on. What is gathered after it is no part of it."""
        if self._open:
            self.usual, self._open = tuple(self._now), False

    def count(self) -> int:
        """Return how many gathers there were since the last :meth:`begin` or :meth:`restart`."""
        return len(self._now)

    def restart(self) -> None:
        """Count from here."""
        self._now, self._open = [], False
