"""Run rows of the demo's table one after the other in one process group: ``torchrun rows_worker.py ROWS.json``.

A torchrun of one agent stands for all nodes: before every attempt each rank takes the node name and the slot that the
roster gives it. What follows an attempt is decided by the first rank from the journal, as the launcher does.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

import lastgood
from lastgood.demo.train import Settings, fault_here, leave, run_attempt
from lastgood_console.demo.options import Options
from lastgood_console.demo.reading import Follower
from lastgood_console.demo.relaunch import Relaunch, Roster, next_attempt, spent


def main(rows: list[dict[str, Any]]) -> None:
    dist.init_process_group("gloo")
    for row in rows:
        run_row(Options(**{**row, "run_dir": Path(row["run_dir"])}))
    dist.barrier()
    leave(0)


def run_row(options: Options) -> None:
    nodes, resume, armed = list(options.node_names), None, True
    for _ in range(3):
        sit(nodes, options)
        stopped = attempt(options, resume, armed)
        dist.barrier()
        following = told(options, nodes) if stopped else None
        if following is None:
            return
        nodes, resume, armed = following
    raise AssertionError("a third attempt ended early")


def sit(nodes: list[str], options: Options) -> None:
    node, slot = divmod(dist.get_rank(), options.ranks_per_node)
    os.environ["LASTGOOD_NODE"], os.environ["LOCAL_RANK"] = nodes[node], str(slot)


def attempt(options: Options, resume: str | None, armed: bool) -> bool:
    name = options.fault if armed and options.fault != "none" else None
    settings = Settings(
        run_dir=options.run_dir,
        run=options.run_dir.name,
        steps=options.steps,
        seed=options.seed,
        save_every=options.save_every,
        audit_every=options.audit_every,
        save_probe=options.save_probe,
        replay=options.replay,
        resume=None if resume is None else Path(resume),
        fault=fault_here(name, options.step, options.fault_node, options.fault_slot, options.seed),
    )
    try:
        run_attempt(settings)
    except lastgood.IntegrityError:
        return True
    return False


def told(options: Options, nodes: list[str]) -> tuple[list[str], str, bool] | None:
    """Let the first rank read the journal and tell the others what follows."""
    box: list[Any] = [None]
    if dist.get_rank() == 0:
        follower = Follower(options.run_dir, options.run_dir.name)
        state = follower.poll(1)
        assert state is not None
        spares = () if options.spare in nodes else (options.spare,)
        following = next_attempt(state, Roster(tuple(nodes), spares))
        if isinstance(following, Relaunch):
            path = str(options.run_dir / following.path)
            box[0] = (list(following.roster.nodes), path, not spent(state))
    dist.broadcast_object_list(box)
    return box[0]  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
