"""The demo's command line: what it means, and one clear sentence for every mistake."""

from __future__ import annotations

import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lastgood.demo.status import write_pushed
from lastgood.events import slug
from lastgood_console.demo.launcher import Launch, environment, free_port, push_environment, worker_arguments
from lastgood_console.demo.options import FAULTS, Options, UsageError, parse
from lastgood_console.demo.pushed import pushed_line
from lastgood_console.demo.screen import introduction


def test_the_defaults_are_the_story_of_the_readme() -> None:
    options = parse([])
    assert (options.fault, options.rank, options.step, options.steps) == ("gradient", 3, 67, 150)
    assert (options.nodes, options.ranks_per_node, options.save_probe, options.replay) == (3, 2, False, True)
    assert (options.node_names, options.spare) == (("node-a", "node-b", "node-c"), "node-d")
    assert (options.fault_node, options.fault_slot) == ("node-b", 1)


def test_the_default_run_directory_is_named_by_the_time_and_is_the_runs_id() -> None:
    options = parse([], now=datetime(2026, 11, 29, 2, 58, 2, tzinfo=UTC))
    assert options.run_dir == Path("runs/demo-20261129t025802z")
    assert slug(options.run_dir.name) == options.run_dir.name


@pytest.mark.parametrize(("nodes", "ranks", "rank"), [(2, 1, 1), (3, 1, 1), (3, 2, 3), (4, 4, 7)])
def test_the_default_rank_is_the_last_of_the_second_node(nodes: int, ranks: int, rank: int) -> None:
    options = parse(["--nodes", str(nodes), "--ranks-per-node", str(ranks)])
    assert (options.rank, options.fault_node, options.fault_slot) == (rank, "node-b", ranks - 1)


def test_a_shorter_run_breaks_no_later_than_its_last_step() -> None:
    options = parse(["--steps", "40"])
    assert options.step == 40
    assert "at step 40, the last of this run, on rank 3" in " ".join(introduction(options))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_an_option(fault: str) -> None:
    assert parse(["--fault", fault]).fault == fault


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--fault", "cosmic"], r"--fault: invalid choice: 'cosmic' \(choose from .*gradient.*none"),
        (["--rank", "6"], "--rank 6: 3 nodes with 2 ranks each have the ranks 0 to 5"),
        (["--rank", "-1"], "--rank -1: .* ranks 0 to 5"),
        (["--step", "0"], r"--step 0: the run has the steps 1 to 150 \(--steps\)"),
        (["--step", "151"], r"--step 151: the run has the steps 1 to 150 \(--steps\)"),
        (["--nodes", "5"], "--nodes: invalid choice: 5"),
        (["--ranks-per-node", "0"], "--ranks-per-node: invalid choice: 0"),
        (["--steps", "0"], "--steps 0: a run has at least 1 step"),
        (["--seed", "-1"], "--seed -1: a seed is 0 or more"),
        (["--port", "0"], "--port 0: a port is 1 to 65535"),
        (["--port", "many"], "--port: invalid int value: 'many'"),
        (["--run-dir", "s3://bucket/x"], "--run-dir s3://bucket/x: a demo writes to a directory .*; give a local path"),
        (["--colour"], "unrecognized arguments: --colour"),
        (["--fake-gpu", "cold"], r"--fake-gpu: invalid choice: 'cold' \(choose from .*steady.*hot"),
        (["--push", "prometheus"], "--push: push_url 'prometheus' must look like http://"),
        (["--push", "http://me:pw@p/write"], "--push: leave the login out of the address and set LASTGOOD_PUSH_BASIC"),
    ],
)
def test_a_wrong_value_is_one_sentence(arguments: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as error:
        parse(arguments)
    assert "\n" not in str(error.value)


def test_a_directory_that_holds_a_run_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    with pytest.raises(UsageError, match="already holds a run, and a demo starts a new one; give another --run-dir"):
        parse(["--run-dir", str(tmp_path)])


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="this is a file; give a new directory"):
        parse(["--run-dir", str(tmp_path / "file")])


def test_a_mistake_ends_the_command_with_code_2_and_one_line() -> None:
    code = "from lastgood_console.demo import main; raise SystemExit(main(['--rank', '9']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "lastgood demo: --rank 9: 3 nodes with 2 ranks each have the ranks 0 to 5\n"


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    code = "import sys; from lastgood_console.demo import main; raise SystemExit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--run-dir", str(tmp_path / "file" / "below")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Not a directory; give a directory that can be written" in done.stderr


def test_the_fault_is_told_by_its_device_and_not_told_when_it_is_spent() -> None:
    options = Options(fault="nan", rank=3)
    armed = worker_arguments(options, Launch(1, options.node_names), "demo")
    spent = worker_arguments(options, Launch(2, options.node_names, resume="/x", armed=False), "demo")
    assert armed[armed.index("--fault-node") + 1 :][:3] == ["node-b", "--fault-slot", "1"]
    assert "--fault" not in spent
    assert spent[spent.index("--resume") + 1] == "/x"


@pytest.mark.parametrize(("given", "mode"), [([], None), (["--fake-gpu"], "steady"), (["--fake-gpu", "hot"], "hot")])
def test_fake_gpus_are_asked_for_by_name_and_belong_to_the_faulty_device(given: list[str], mode: str | None) -> None:
    options = parse([*given, "--rank", "2", "--fault", "none"])
    assert options.fake_gpu == mode
    words = worker_arguments(options, Launch(2, ("node-a",)), "demo")
    told = ["--fake-gpu", mode, "--fake-node", "node-b", "--fake-slot", "0"]
    assert words[-6:] == told or (mode is None and "--fake-gpu" not in words)


def test_the_introduction_says_that_the_gpus_are_made_up() -> None:
    assert "fake" not in " ".join(introduction(Options()))
    assert "a fake GPU (--fake-gpu)" in " ".join(introduction(Options(fake_gpu="steady")))
    hot = " ".join(introduction(Options(fake_gpu="hot")))
    assert "the one of rank 3 misbehaves: its temperature climbs" in hot


def test_in_a_container_ranks_serve_their_metrics_where_the_scraper_finds_them() -> None:
    got = environment("node-a", {"LASTGOOD_METRICS_ADDRESS": "trainer"})
    assert got["LASTGOOD_METRICS_ADDRESS"] == "trainer"


def test_ranks_are_told_to_push_every_second_with_the_terminals_login_and_only_when_asked() -> None:
    terminal = {"LASTGOOD_PUSH_TOKEN": "t", "LASTGOOD_PUSH_URL": "http://other"}
    assert push_environment("", terminal) == {}
    assert push_environment("http://p/write", terminal) == {
        "LASTGOOD_PUSH_URL": "http://p/write", "LASTGOOD_PUSH_SECONDS": "1", "LASTGOOD_PUSH_TOKEN": "t",
    }  # fmt: skip


def test_the_terminals_time_between_two_pushes_is_kept() -> None:
    for seconds, kept in (("0", "0"), ("2.5", "2.5"), ("", "1")):
        found = push_environment("http://p/write", {"LASTGOOD_PUSH_SECONDS": seconds})
        assert found["LASTGOOD_PUSH_SECONDS"] == kept


@pytest.mark.parametrize(("seconds", "says"), [("often", "'often': expected a number"), ("-1", "push_seconds=-1")])
def test_a_wrong_time_between_two_pushes_is_said_before_a_rank_starts(
    monkeypatch: pytest.MonkeyPatch, seconds: str, says: str
) -> None:
    monkeypatch.setenv("LASTGOOD_PUSH_SECONDS", seconds)
    with pytest.raises(UsageError, match=f"--push: .*{says}"):
        parse(["--push", "http://p/write"])


def test_the_end_says_how_many_samples_arrived(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    write_pushed(tmp_path, 1, 0, sent=3000, lost=0)
    write_pushed(tmp_path, 2, 0, sent=2000, lost=0)
    assert pushed_line(tmp_path, "http://p/write?k=1", 2) == "Pushed 5,000 samples to http://p/write; none was lost."
    write_pushed(tmp_path, 2, 1, sent=0, lost=60)
    assert pushed_line(tmp_path, "http://p/write", 4) == (
        "Pushed 5,000 samples to http://p/write; 60 were lost. 1 of 4 ranks ended without saying what they pushed."
    )


def test_the_operators_settings_do_not_reach_the_demo() -> None:
    got = environment("node-a", {"LASTGOOD_REPLAY_EVERY": "7", "LASTGOOD_NODE": "mine", "PATH": "/bin"})
    assert got["LASTGOOD_NODE"] == "node-a"
    assert "LASTGOOD_REPLAY_EVERY" not in got
    assert (got["PATH"], got["OMP_NUM_THREADS"], got["LASTGOOD_METRICS_ADDRESS"]) == ("/bin", "1", "127.0.0.1")


def test_a_taken_port_gives_the_next_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < free_port(port) < port + 100
