"""Run a drill's trials on one rank of one process group: ``torchrun -m lastgood.drill.worker FOLDER GROUP GROUPS``.

``FOLDER/plan.json`` says what to run; this is group ``GROUP`` (from 0) of ``GROUPS`` that share it in turn. The first
rank writes ``FOLDER/<trial>/truth.json`` as each ends, which is also how far the drill has come.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from lastgood.demo.orphan import end_with_parent
from lastgood.demo.text import read_corpus
from lastgood.demo.train import leave
from lastgood.drill.plan import read_plan
from lastgood.drill.trial import run_trial


def main(folder: Path, group: int, groups: int) -> None:
    """Run this group's trials of the plan, in its order. A rank that fails ends the others after a minute."""
    end_with_parent()
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    corpus = read_corpus()
    for trial in read_plan(json.loads((folder / "plan.json").read_text(encoding="utf-8")))[group::groups]:
        told = run_trial(trial, folder, corpus)
        if told is not None:
            scratch = folder / trial.name / ".truth.json"
            scratch.write_text(json.dumps(told), encoding="utf-8")
            scratch.rename(folder / trial.name / "truth.json")
    dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    leave(0)
