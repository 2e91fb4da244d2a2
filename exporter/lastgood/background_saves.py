"""Follow saves that go on after their context has ended (``dcp.async_save`` and the like), until they are complete.

The context of such a save ends when training may go on, long before the files are complete; the record, which says
that they are, must come after them. So every rank waits for its own future in a thread and says in the job's
key-value store how it ended; rank 0 reads all of them and then writes record and event. No collective is used: the
training thread is somewhere else by then.

A save that the attempt does not live to see completed is never recorded, whatever its files hold.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lastgood.comm import World

POLL_SECONDS: Final = 0.1
GRACE_SECONDS: Final = 0.3
"""How long an end waits for the thread that follows a future to see that it has ended."""

Wait = Callable[[], object]


class Save:
    """What ``monitor.checkpoint`` gives. ``future``: set it when the save goes on after the context.

    It is what ``torch.distributed.checkpoint.async_save`` returned, or any future with ``result()`` or ``wait()``.
    """

    def __init__(self) -> None:
        self.future: Any = None

    def completion(self) -> Wait | None:
        """Return what waits for the future; None without one. Raises TypeError for something that is no future."""
        if self.future is None:
            return None
        future = getattr(self.future, "upload_completion", self.future)  # async_save with a stager gives two futures
        wait = getattr(future, "result", None) or getattr(future, "wait", None)
        if not callable(wait):
            raise TypeError(f"save.future is a {type(future).__name__}, not a future: give what async_save returned")
        found: Wait = wait
        return found


@dataclass(frozen=True, slots=True)
class Exit:
    """How a save's context ended, alike on every rank. ``writers``: the ranks whose save goes on in the background.

    ``token``: no other save of the job has it, whatever else is watched there.
    """

    problem: str
    writers: Sequence[int] = ()
    token: int = 0


def agree_on_exit(world: World, ok: bool, goes_on: bool) -> Exit:
    """Tell each other whether the saving code worked, and whether it goes on in the background. Collective."""
    rows = world.gather_ints([int(ok), int(goes_on), secrets.randbits(62)])
    bad = [rank for rank, row in enumerate(rows) if not row[0]]
    problem = f"rank {', '.join(map(str, bad))} failed" if bad else ""
    return Exit(problem, [rank for rank, row in enumerate(rows) if row[1]], rows[0][2])


class BackgroundSave:
    """One save in the background, as one rank sees it.

    ``key``: no other save has it. ``wait``: waits for this rank's own future, None on a rank that has none.
    ``writers``: the ranks that have one. ``store``: the job's key-value store.
    ``on_end(problem)``: called once, on rank 0, in a thread; "" when every rank's future ended well.
    """

    def __init__(
        self,
        key: str,
        rank: int,
        writers: Sequence[int],
        wait: Wait | None,
        store: Any,
        on_end: Callable[[str], None],
    ) -> None:
        self._key, self._rank, self._writers, self._wait, self._store = key, rank, writers, wait, store
        self._on_end = on_end
        self._lock = threading.Lock()
        self._taken = False
        self._own = threading.Event()
        self._settled = threading.Event()
        threading.Thread(target=self._follow, name="lastgood-save", daemon=True).start()

    def wait_for_own(self) -> None:
        """Wait until this rank's own future has ended, however long it takes."""
        self._own.wait()

    def finish(self, seconds: float) -> None:
        """Let what is complete be recorded, for at most ``seconds``; what is not complete by then never is."""
        deadline = time.monotonic() + seconds
        if self._own.wait(min(seconds, GRACE_SECONDS)):
            self._settled.wait(max(0.0, deadline - time.monotonic()))
        if self._take():
            self._end("the attempt ended before the save was complete")

    @property
    def settled(self) -> bool:
        """Tell whether nothing more will come of it on this rank."""
        return self._settled.is_set()

    def _follow(self) -> None:
        problem = self._outcome()
        if self._store is not None and self._wait is not None and self._rank != 0:
            self._say(problem)
        self._own.set()
        if self._rank == 0:
            problem = problem or self._of_others()
            if self._take():
                self._end(problem)
        else:
            self._settled.set()

    def _outcome(self) -> str:
        """Return how this rank's own future ended, "" when well."""
        try:
            if self._wait is not None:
                self._wait()
        except BaseException as error:  # a future can carry anything, also an exit
            return f"{type(error).__name__}: {error}"
        return ""

    def _say(self, problem: str) -> None:
        try:
            self._store.set(f"{self._key}/{self._rank}", problem or "ok")
        except Exception:  # rank 0 is gone with its store, and nobody is left to record the save
            return

    def _of_others(self) -> str:
        """Wait for what the other ranks say; return the first problem, "" for none."""
        keys = {rank: f"{self._key}/{rank}" for rank in self._writers if rank != 0}
        if keys and self._store is None:
            return "the ranks could not tell each other how the save ended"
        try:
            while keys and not self._taken and not self._store.check(list(keys.values())):
                time.sleep(POLL_SECONDS)
            words = {} if self._taken else {rank: self._store.get(key).decode() for rank, key in keys.items()}
        except Exception as error:
            return f"the ranks could not tell each other how the save ended ({error})"
        return next((f"rank {rank}: {word}" for rank, word in words.items() if word != "ok"), "")

    def _take(self) -> bool:
        """Take the right to say how the save ended; only the first gets it."""
        with self._lock:
            first, self._taken = not self._taken, True
        return first and self._rank == 0

    def _end(self, problem: str) -> None:
        try:
            self._on_end(problem)
        finally:
            self._settled.set()
