"""Look at what the checks cost every so often, and go on with the cadences that the budget allows.

A look begins where the numbers of a step have been judged, the same step on every rank, and ends between two updates,
so that all ranks change their cadences at one place. After a step that was judged late it ends an update later: by
then the costs of the other ranks have arrived, and nobody waits for them.
"""

from __future__ import annotations

import math

from lastgood.budget import LONGEST
from lastgood.cadences import REVIEW_EVERY, Cadences
from lastgood.judge import Judge
from lastgood.session import Session


class Review:
    """The looks of one rank. ``start``: the step that the attempt began with."""

    def __init__(self, session: Session, cadences: Cadences, judge: Judge) -> None:
        self._session, self._cadences, self._judge = session, cadences, judge
        self.start = 0
        self._step = 0  # the newest look
        self._ends = math.inf  # before which update it ends

    def begin(self, step: int, *, late: bool = False) -> None:
        """Begin a look where it is time; step ``step`` has been judged. Collective with a budget."""
        if (step - self.start) % REVIEW_EVERY or step == self._step:
            return
        self._step, self._ends = step, step + 2 if late else step
        with self._cadences.spending.on("every_step"):
            self._cadences.begin_review()

    def before_update(self, step: int) -> None:
        """End a look whose time has come; the update of step ``step`` begins."""
        if step >= self._ends:
            self.end()

    def end(self) -> None:
        """End the look that has begun, if any. Every rank calls it at the same place."""
        if self._ends == math.inf:
            return
        self._ends = math.inf
        change = self._cadences.end_review()
        if change is not None and self._session.world.rank == 0:
            self._session.publisher.write("cadence", change, self._step)
        if alone := self._cadences.over():
            self._judge.say(
                f"budget={self._cadences.budget:g}: the checks of every step alone take {alone:.2%} of step time, and "
                f"are never switched off; the others run up to {LONGEST} times rarer than configured"
            )
