"""Name the places of a training step at which the fault injector may corrupt real numbers.

The monitor calls these points and knows nothing about faults. :class:`NoInjection` is what every production run has:
it does nothing, so the monitor needs no ``if``. The injector that does something is :class:`lastgood.faults.Injector`;
it is handed over as an argument and armed by hand, never by a setting or an environment variable.

The monitor hands over its journal first (``journal_to``). The order within one step: ``on_step``, ``resting``,
``batch``, per bucket ``bucket`` and ``reduced``, ``after_update``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lastgood.events import InjectionData

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

Batch = TypeVar("Batch")


class JournalWrite(Protocol):
    """Write one event: its type without the prefix, its data, its step."""

    def __call__(self, type: str, data: InjectionData, *, step: int) -> Any:
        """Write it now."""


class InjectionPoints(Protocol):
    """What the monitor calls, at the moments that the methods name. ``step`` counts as the journal does."""

    def journal_to(self, write: JournalWrite) -> None:
        """Take the journal: called once, before the first step, because every injection is journaled."""

    def on_step(self, step: int) -> None:
        """Step ``step`` begins: before its first forward."""

    def resting(self, step: int, model: Module, optimizer: Optimizer) -> None:
        """Corrupt weights or optimizer state in place while nobody writes: before the first forward of step ``step``.

        A sample of the ``at_rest`` check has had its first look by then.
        """

    def batch(self, step: int, batch: Batch) -> Batch:
        """Return the batch that the step is to use, before it is remembered for a replay."""

    def bucket(self, index: int, tensor: Tensor, step: int) -> None:
        """Corrupt a local gradient bucket in place: after the first projection, before the reduce."""

    def reduced(self, index: int, tensor: Tensor, step: int, rank: int) -> None:
        """Corrupt a reduced bucket in place: after the reduce, before the second projection."""

    def after_update(self, step: int, model: Module, optimizer: Optimizer) -> None:
        """Corrupt weights or optimizer state in place: after the update of step ``step``."""


class NoInjection:
    """Inject nothing: what a run has that measures no faults."""

    def journal_to(self, write: JournalWrite) -> None:
        """Do nothing."""

    def on_step(self, step: int) -> None:
        """Do nothing."""

    def resting(self, step: int, model: Module, optimizer: Optimizer) -> None:
        """Do nothing."""

    def batch(self, step: int, batch: Any) -> Any:
        """Return the batch itself."""
        return batch

    def bucket(self, index: int, tensor: Tensor, step: int) -> None:
        """Do nothing."""

    def reduced(self, index: int, tensor: Tensor, step: int, rank: int) -> None:
        """Do nothing."""

    def after_update(self, step: int, model: Module, optimizer: Optimizer) -> None:
        """Do nothing."""
