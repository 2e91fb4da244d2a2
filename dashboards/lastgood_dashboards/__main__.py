"""Write the dashboards: ``python -m lastgood_dashboards DIR``. Needs Grafana's foundation SDK."""

from __future__ import annotations

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Write every dashboard into the folder given. Returns 0, or 2 when it was asked wrongly or lacks the SDK."""
    if len(arguments) != 1:
        print("usage: python -m lastgood_dashboards DIR", file=sys.stderr)
        return 2
    try:
        from lastgood_dashboards.frame import generated
    except ModuleNotFoundError as problem:
        print(f"{problem.name} is missing: pip install 'lastgood[dev]'", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in generated().items():
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
