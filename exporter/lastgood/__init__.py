"""Find out which rank lied, and which checkpoint is the last good one.

Two lines in a training loop switch on the checks, the per-rank metrics and the journal::

    import lastgood

    monitor = lastgood.watch(model, optimizer, run_dir="runs/llama-7b", loss_fn=loss_fn)
    for batch in loader:
        loss = monitor.loss(batch)  # loss_fn(model, batch), remembered for the replay
        loss.backward()
        optimizer.step()  # the checks run in hooks
        optimizer.zero_grad()
    monitor.close()

Importing this package imports no torch: the pure core (events, journal, verdict, trust, incidents, ledger) also
serves readers on machines without it. ``watch`` and ``Monitor`` load torch when first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lastgood._version import __version__
from lastgood.errors import ConfigError, IntegrityError, LastgoodError

if TYPE_CHECKING:
    from lastgood.monitor import Monitor, watch

__all__ = ["ConfigError", "IntegrityError", "LastgoodError", "Monitor", "__version__", "watch"]

_NEEDS_TORCH = {"Monitor", "watch"}


def __getattr__(name: str) -> Any:
    if name in _NEEDS_TORCH:
        from lastgood import monitor

        return getattr(monitor, name)
    raise AttributeError(f"module 'lastgood' has no attribute {name!r}")
