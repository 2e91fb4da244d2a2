"""Run the web console for as long as the demo that started it: ``python -m ... DEMO_PID <console arguments>``."""

from __future__ import annotations

import sys

from lastgood.demo.orphan import end_with_parent


def main(arguments: list[str]) -> int:
    """Run ``lastgood console`` with ``arguments[1:]``; end when the process ``arguments[0]`` does."""
    end_with_parent(int(arguments[0]))
    from lastgood_console.cli import main as cli

    return cli(["console", *arguments[1:]])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
