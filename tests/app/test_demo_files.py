"""What the demo tells people to type works as typed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from lastgood_console.demo.files import inventory, program

SCRIPT = Path(sysconfig.get_path("scripts")) / "lastgood"


def test_on_the_path_the_bare_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(SCRIPT.parent), prepend=":")
    assert program() == "lastgood"


@pytest.mark.parametrize("other", [False, True])
def test_off_the_path_or_behind_another_lastgood_the_script_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    if other:
        (tmp_path / "lastgood").write_text("#!/bin/sh\n")
        (tmp_path / "lastgood").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert program() == str(SCRIPT)
    monkeypatch.chdir(SCRIPT.parents[2])
    assert program() == str(SCRIPT.relative_to(SCRIPT.parents[2]))


def test_without_a_script_the_interpreter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert program() == f"{sys.executable} -m lastgood_console.cli"


def test_the_command_at_the_end_works_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    kind, command = inventory(tmp_path / "a run", [])[-1]
    assert (kind, command.endswith(f"console '{tmp_path}/a run'")) == ("look at it", True)
    done = subprocess.run(["/bin/sh", "-c", f"{command} --help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: lastgood console")
