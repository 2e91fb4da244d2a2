"""Run one node's torchrun agent: ``python -m lastgood.demo.agent LAUNCHER_PID <torchrun arguments>``.

It is ``torch.distributed.run`` that also ends when the launcher is gone.
"""

from __future__ import annotations

import sys

from lastgood.demo.orphan import end_with_parent


def main(arguments: list[str]) -> None:
    """Run torchrun with ``arguments[1:]`` until its workers end, or the process ``arguments[0]`` does."""
    end_with_parent(int(arguments[0]))
    from torch.distributed.run import main as torchrun

    torchrun(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
