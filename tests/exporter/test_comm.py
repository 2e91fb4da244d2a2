"""Which group the control traffic of the checks goes over."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from tests.exporter.ranks import free_port

SCRIPT = """
    import sys, torch.distributed as dist
    from lastgood.comm import World
    dist.init_process_group(sys.argv[1], init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=0, world_size=1)
    world = World()
    print(world.control is world.group, dist.get_backend(world.control))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "shared"), [("gloo", True), ("cpu:gloo", False)])
def test_a_group_of_several_backends_is_left_to_the_job(backend: str, shared: bool) -> None:
    """An asynchronous save of the job runs its collectives over that gloo, from a thread, while training goes on."""
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), backend, str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(shared), "gloo"]
