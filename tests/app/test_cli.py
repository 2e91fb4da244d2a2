from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from tests.app.fixtures import run_dirs

from lastgood import __version__
from lastgood_console import cli
from lastgood_console.export import document
from lastgood_console.export.formats import FORMATS

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return run_dirs.written(run_dirs.gradient(), tmp_path / "runs" / "llama-7b")


def error_of(capsys: Capture) -> str:
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err


def test_the_version_is_the_package_s(capsys: Capture) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"lastgood {__version__}"


def test_help_names_every_command(capsys: Capture) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert not [name for name in cli.COMMANDS if f"\n  {name} " not in out]


@pytest.mark.parametrize("arguments", [[], ["launch"], ["--nonsense"]])
def test_what_is_no_command_is_a_usage_error(arguments: list[str], capsys: Capture) -> None:
    assert cli.main(arguments) == 2
    assert "lastgood" in error_of(capsys)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_its_help(name: str, capsys: Capture) -> None:
    assert cli.main([name, "--help"]) == 0
    assert f"usage: lastgood {name}" in capsys.readouterr().out


def test_incidents_says_who_lied_and_from_where_to_resume(run_dir: Path, capsys: Capture) -> None:
    assert cli.main(["incidents", str(run_dir)]) == 0
    out = capsys.readouterr().out
    assert "◆ ATTRIBUTED to a GPU · confidence exact · persistent fault" in out
    assert "Rank 3 (node-b, GPU-node…, slot 1) computed wrong gradients in steps (50, 100]." in out
    assert "step 50, trusted ✓ checkpoints/a1-step-000050" in out
    assert "checkpoints/a1-step-000075" in out
    assert "recovered by attempt 2" in out


def test_an_open_incident_is_an_exit_code_of_one(tmp_path: Path, capsys: Capture) -> None:
    run_dirs.written(run_dirs.still_open(), tmp_path / "llama-7b")
    assert cli.main(["incidents", str(tmp_path)]) == 1
    assert 'monitor.resume("checkpoints/a1-step-000050")' in capsys.readouterr().out


def test_a_run_without_an_incident_says_how_far_the_checks_looked(tmp_path: Path, capsys: Capture) -> None:
    run_dirs.written(run_dirs.quiet(), tmp_path / "quiet")
    assert cli.main(["incidents", str(tmp_path / "quiet")]) == 0
    assert "No finding in 50 steps. Replay last passed 0 steps ago." in capsys.readouterr().out


def test_a_switched_off_replay_is_said_and_not_called_healthy(tmp_path: Path, capsys: Capture) -> None:
    story = run_dirs.History("blind").start(not_run={"replay": "no loss_fn"}).save(0).save(25)
    run_dirs.written(story, tmp_path / "blind")
    assert cli.main(["incidents", str(tmp_path / "blind")]) == 0
    out = capsys.readouterr().out
    assert "No finding, but replay does not run (no loss_fn): a wrong gradient would not be seen." in out


def test_runs_are_found_by_name_in_the_usual_place(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(run_dir.parent.parent)
    assert cli.main(["incidents", "llama-7b"]) == 0
    assert cli.main(["incidents"]) == 0
    monkeypatch.chdir("/")
    monkeypatch.setenv("LASTGOOD_RUNS", str(run_dir.parent))
    assert cli.main(["checkpoint", "list", "llama-7b"]) == 0
    assert "Last good: step 150" in capsys.readouterr().out


def test_export_writes_json_that_holds_to_its_schema(run_dir: Path, capsys: Capture) -> None:
    assert cli.main(["export", str(run_dir), "--format", "json"]) == 0
    text = capsys.readouterr().out
    jsonschema.validate(json.loads(text), document.schema())
    assert document.dumps(document.loads(text)) == text


def test_export_writes_the_report_to_a_file_and_the_same_bytes_again(run_dir: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1.html", tmp_path / "2.html"
    for output in (first, second):
        assert cli.main(["export", str(run_dir), "--format", "html", "--output", str(output)]) == 0
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(b"<!doctype html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1.html", "2.html", "runs"]


@pytest.mark.parametrize("form", FORMATS)
def test_an_exported_file_is_enough_for_every_format(run_dir: Path, tmp_path: Path, form: str) -> None:
    file, direct, again = tmp_path / "incident.json", tmp_path / "direct", tmp_path / "again"
    assert cli.main(["export", str(run_dir), "--output", str(file)]) == 0
    assert cli.main(["export", str(run_dir), "--format", form, "--output", str(direct)]) == 0
    assert cli.main(["export", "--from", str(file), "--format", form, "--output", str(again)]) == 0
    assert again.read_bytes() == direct.read_bytes()


def test_a_file_with_a_byte_order_mark_is_the_same_incident(run_dir: Path, tmp_path: Path) -> None:
    file, direct, again = tmp_path / "incident.json", tmp_path / "direct", tmp_path / "again"
    assert cli.main(["export", str(run_dir), "--output", str(file)]) == 0
    assert cli.main(["export", str(run_dir), "--format", "md", "--output", str(direct)]) == 0
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert cli.main(["export", "--from", str(file), "--format", "md", "--output", str(again)]) == 0
    assert again.read_bytes() == direct.read_bytes()


def test_an_exported_file_can_come_through_a_pipe(run_dir: Path) -> None:
    command = f"{sys.executable} -m lastgood_console.cli"
    line = f"{command} export {run_dir} | {command} export --from - --format md"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("# Incident r-")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "is not UTF-8"),
        (
            b'{"format": "lastgood.incident", "version": 9}',
            "version 9: this lastgood reads version 1, use the one that",
        ),
        (b'{"format": "lastgood.incident", "version": 1}', "not a whole incident document"),
        (None, "(No such file or directory): give the JSON export of an incident"),
    ],
)
def test_a_file_that_is_no_incident_is_said_in_one_sentence(
    content: bytes | None, problem: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "x.json"
    if content is not None:
        file.write_bytes(content)
    assert cli.main(["export", "--from", str(file), "--format", "csv"]) == 2
    err = error_of(capsys)
    assert problem in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["runs", "--from", "x.json"]])
def test_export_wants_a_run_or_a_file(arguments: list[str], capsys: Capture) -> None:
    assert cli.main(["export", *arguments]) == 2
    assert "give either RUN or --from FILE" in error_of(capsys)


def test_an_incident_is_found_by_the_beginning_of_its_id(run_dir: Path, capsys: Capture) -> None:
    cli.main(["export", str(run_dir)])
    identity = json.loads(capsys.readouterr().out)["incident"]["id"]
    assert cli.main(["export", str(run_dir), identity[:4]]) == 0
    assert cli.main(["export", str(run_dir), "r-nope"]) == 2
    assert f"run llama-7b has no incident r-nope: give one of {identity}" in error_of(capsys)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["incidents", "nowhere"], "nowhere does not exist and is no run's name in runs: give a run directory"),
        (["incidents"], "no runs in runs: give a run directory, set LASTGOOD_RUNS, or start a run with"),
        (["incidents", "."], ". holds no run: a run directory has journal/"),
        (["export", "s3://bucket/run"], "s3://bucket/run is an object store; the runs must lie on a mounted POSIX"),
        (["checkpoint", "list", "nowhere"], "nowhere does not exist"),
    ],
)
def test_a_run_that_is_not_there_is_said_in_one_sentence(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    err = error_of(capsys)
    assert problem in err
    assert err.count("\n") == 1


def test_exporting_from_several_runs_or_from_a_quiet_one_says_what_to_name(tmp_path: Path, capsys: Capture) -> None:
    run_dirs.written(run_dirs.quiet(), tmp_path / "quiet")
    run_dirs.written(run_dirs.gradient(), tmp_path / "llama-7b")
    assert cli.main(["export", str(tmp_path)]) == 2
    assert "holds 2 runs: name one of llama-7b, quiet" in error_of(capsys)
    assert cli.main(["export", str(tmp_path / "quiet")]) == 2
    assert "run quiet has no incident: there is nothing to export" in error_of(capsys)


def test_a_file_that_cannot_be_written_is_said(run_dir: Path, tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["export", str(run_dir), "--output", str(tmp_path / "no" / "x.json")]) == 2
    assert "No such file or directory): give another --output" in error_of(capsys)
    (tmp_path / "taken").mkdir()
    assert cli.main(["export", str(run_dir), "--output", str(tmp_path / "taken")]) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs", "taken"]


@pytest.mark.parametrize("output", ["", ".", "/", "..", "taken", "file/x", "x" * 250, "x" * 300])
def test_what_is_no_name_of_a_file_is_said_and_nothing_is_left(
    output: str, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "here" / "taken").mkdir(parents=True)
    (tmp_path / "here" / "file").touch()
    monkeypatch.chdir(tmp_path / "here")
    assert cli.main(["export", str(run_dir), "--output", output]) == 2
    assert "is not the name of a file" in (err := error_of(capsys)) or "give another --output" in err
    assert sorted(path.name for path in Path().iterdir()) == ["file", "taken"]


LONG = ("a" * 300, "a/" * 3000 + "b", "b" * 5000)


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize(
    "command",
    [["export"], ["incidents"], ["checkpoint", "list"], ["checkpoint", "verify"], ["serve", "--port", "0"],
     ["console", "--port", "0"], ["stack"], ["demo", "--no-console", "--run-dir"], ["export", "--from"],
     ["incidents", "--state"], ["incident", "note", "run", "r", "x", "--by", "m", "--state"],
     ["rules", "--output"], ["grafana", "deploy", "--url", "http://h", "--token", "t", "--annotations"],
     ["grafana", "deploy", "--url", "http://h", "--token-file"]],
    ids=lambda command: "-".join(command[:2]),
)  # fmt: skip
def test_a_name_that_is_too_long_is_one_sentence(
    command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    run_dirs.written(run_dirs.still_open(), tmp_path / "runs" / "run")
    assert cli.main([*command, name]) == 2
    err = error_of(capsys)
    assert "File name too long" in err
    assert err.count("\n") == 1


def test_a_file_without_permission_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)
    assert cli.main(["incidents", "/root/runs"]) == 2
    assert error_of(capsys).startswith("lastgood incidents: /root/runs: Permission denied; give a path")


def test_a_bug_is_not_hidden_behind_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "exists", broken)
    with pytest.raises(OSError, match="Input/output error"):
        cli.main(["incidents", "runs"])


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_no_command_takes_a_nul_character(name: str, capsys: Capture) -> None:
    assert cli.main([name, "a\0b"]) == 2
    assert error_of(capsys) == f"lastgood {name}: an argument holds a NUL character, which no path and no address may\n"


@pytest.mark.parametrize("command", ["console", "serve"])
@pytest.mark.parametrize(
    ("host", "says"),
    [("\udcff", "can be no host"), ("a" * 300, "can be no host"), ("a..b", "can be no host"), ("a\tb\x01", "cannot"),
     ("1.2.3.4.5", "cannot listen on"), (":::::", "cannot listen on"), ("a.invalid", "cannot listen on")],
)  # fmt: skip
def test_a_host_that_cannot_be_listened_on_is_said(command: str, host: str, says: str, tmp_path: Path) -> None:
    done = run(command, "--host", host, "--port", "18888", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_unreadable_lines_are_named_and_the_rest_is_shown(run_dir: Path, capsys: Capture) -> None:
    file = run_dir / "journal" / "000001" / "rank-0.jsonl"
    file.write_text("{ torn\n" + file.read_text())
    assert cli.main(["incidents", str(run_dir)]) == 0
    captured = capsys.readouterr()
    assert "1 place could not be read; what follows may be incomplete:" in captured.err
    assert "rank-0.jsonl:1" in captured.err
    assert "ATTRIBUTED" in captured.out


def test_what_others_wrote_cannot_steer_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    run_dirs.written(run_dirs.gradient(path="checkpoints/\x1b[2Jgone"), tmp_path / "llama-7b")
    cli.main(["incidents", str(tmp_path / "llama-7b")])
    cli.main(["checkpoint", "list", str(tmp_path / "llama-7b")])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "checkpoints/\ufffd[2Jgone" in out


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lastgood_console.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


def test_an_old_terminal_encoding_breaks_nothing(run_dir: Path) -> None:
    done = run("incidents", str(run_dir), PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "? ATTRIBUTED to a GPU" in done.stdout


def test_a_reader_that_goes_away_leaves_no_traceback(run_dir: Path) -> None:
    command = f"{sys.executable} -m lastgood_console.cli export {run_dir} --format html | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "<!doctype "
    assert done.stderr == ""


BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {extra}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
from lastgood_console import cli
sys.exit(cli.main(sys.argv[1:]))
"""


def lean(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command where nothing of the extras can be imported."""
    extra = sorted({*cli.EXTRA_MODULES, "torch", "numpy"})
    code = BLOCK.format(extra=extra)
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_the_lean_install_lists_and_exports(run_dir: Path) -> None:
    for arguments in (
        ["incidents"],
        ["checkpoint", "list"],
        ["export", "--format", "html"],
        ["export", "--format", "csv"],
        ["export", "--format", "md"],
    ):
        done = lean(*arguments, str(run_dir))
        assert (done.returncode, done.stderr) == (0, "")
        assert "a1-step-000050" in done.stdout


def test_the_lean_install_takes_the_word_of_a_person(tmp_path: Path) -> None:
    run_dir = run_dirs.written(run_dirs.still_open(), tmp_path / "llama-7b")
    done = lean("incident", "acknowledge", str(run_dir), "r-", "--by", "mira")
    assert (done.returncode, done.stderr) == (0, "")
    assert "It is open, acknowledged by mira." in done.stdout


@pytest.mark.parametrize("name", ["console", "demo", "stack"])
def test_a_command_that_needs_an_extra_says_which(name: str, tmp_path: Path) -> None:
    done = lean(name, *(["--run-dir", str(tmp_path / "x")] if name == "demo" else [str(tmp_path)]))
    assert done.returncode == 2
    assert done.stderr == f"lastgood {name}: needs the console extra: pip install 'lastgood[console]'\n"
