"""``lastgood doctor``: what works here, what does not, and the way out of it.

Each module looks at one side of the world (``install``, ``run_directory``, ``network``, ``settings``): a *probe*
gathers facts and may touch files, processes and sockets; a *decision* turns facts into items and touches nothing.
"""

from __future__ import annotations

from lastgood_console.doctor.command import main
from lastgood_console.doctor.item import Item

__all__ = ["Item", "main"]
