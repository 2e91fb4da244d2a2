"""Write every generated file: ``python -m lastgood_alerts DIR``."""

import sys
from pathlib import Path

from lastgood_alerts.files import write_files

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m lastgood_alerts DIR")
    write_files(Path(sys.argv[1]))
