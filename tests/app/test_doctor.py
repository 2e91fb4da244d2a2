"""The doctor: what works, what is broken, and the way out of it."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lastgood.devices.fake_nvml import MODES, FakeNvml
from lastgood.devices.nvml import NvmlSensors
from lastgood.environment_report import looked_at
from lastgood.ingest import EventIntake
from lastgood.ledger import Ledger
from lastgood.serve import make_server
from lastgood_console.doctor import install, item, main, network, run_directory, settings
from lastgood_console.doctor.answer import Answer
from lastgood_console.doctor.command import _usual as usual
from lastgood_console.doctor.install import Told
from lastgood_console.doctor.item import Item
from lastgood_console.doctor.prometheus import prometheus_items
from lastgood_console.doctor.run_directory import Tried

CPU = {"torch": "2.13.0+cpu", "cuda": None, "hip": None, "gpus": [], "backends": ["gloo"]}
H200 = CPU | {"gpus": [{"name": "H200"}] * 8, "backends": ["gloo", "nccl"]}


def levels(items: Any) -> list[tuple[str, str]]:
    return [(found.name, found.level) for found in items]


# --- what is installed -----------------------------------------------------------------------------------------------


def test_a_python_that_is_too_old_fails() -> None:
    assert install.python_item((3, 11, 7)) == Item("python", "ok", "3.11.7")
    old = install.python_item((3, 10, 2))
    assert (old.level, old.way_out) == ("fail", "use Python 3.11 or newer")


def test_torch_without_a_gpu_is_in_order() -> None:
    found = list(install.torch_items(Told(CPU)))
    assert levels(found) == [("torch", "ok"), ("gpu", "ok")]
    assert found[1].says.startswith("none here: the checks run on the CPU")


def test_gpus_are_counted_by_name() -> None:
    assert list(install.torch_items(Told(H200)))[1].says == "8: H200"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (Told(None, "No module named 'torch'"), [("torch", "warn")]),
        (Told(CPU | {"torch": "2.4.1"}), [("torch", "fail"), ("gpu", "ok")]),
        (Told(H200 | {"backends": ["gloo"]}), [("torch", "ok"), ("gpu", "ok"), ("gpu", "warn")]),
    ],
)
def test_a_torch_that_is_missing_old_or_without_nccl_is_told(told: Told, expected: list[tuple[str, str]]) -> None:
    found = list(install.torch_items(told))
    assert levels(found) == expected
    assert all(broken.way_out for broken in found if broken.level != "ok")


READING = {"power_watts": 640.0, "core_celsius": 60.0, "margin_celsius": None}


@pytest.mark.parametrize(
    ("told", "setting", "level", "words"),
    [
        (Told({"reading": READING, "problem": "", "kind": ""}), "auto", "ok", "answer, but for margin_celsius"),
        (Told({"reading": {"a": 1}, "problem": "", "kind": ""}), "auto", "ok", "all answer"),
        (Told({"reading": {}, "problem": "no pynvml", "kind": "no pynvml"}), "auto", "warn", "lastgood[nvidia]"),
        (Told({"reading": {}, "problem": "lost", "kind": "GpuIsLost"}), "auto", "warn", "training works without"),
        (Told(None, "no answer within 30 s"), "auto", "warn", "the driver hangs"),
        (Told(None, "no answer within 30 s"), "off", "ok", "switched off"),
    ],
)
def test_the_sensors_of_a_gpu(told: Told, setting: str, level: str, words: str) -> None:
    found = install.sensors_item(told, setting)
    assert found.level == level
    assert words in f"{found.says} {found.way_out}"


def test_a_gpu_whose_sensors_all_answer_lacks_none() -> None:
    library = FakeNvml("node-b", 1)
    told = Told(looked_at(NvmlSensors(library.uuid, library=library)), "")
    assert install.sensors_item(told, "auto").says == "all answer"


def test_a_missing_compiler_matters_only_where_torch_is() -> None:
    assert install.compiler_item(["c++"], "/usr/bin/c++", True).level == "ok"
    assert install.compiler_item(["c++"], None, True).level == "warn"
    assert install.compiler_item(["c++"], None, False).level == "ok"


def test_a_missing_extra_is_a_warning_and_half_of_one_a_failure() -> None:
    found = {i.name: i for i in install.extra_items({"streamlit", "cramjam"})}
    assert found["extra console"].level == "fail"
    assert "without streamlit" in found["extra console"].says
    assert (found["extra push"].level, found["extra push"].way_out) == ("warn", "pip install 'lastgood[push]'")
    assert found["extra grafana"].level == "ok"


def test_the_extras_are_those_of_the_package() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = {name.partition(">")[0].replace("-", "_") for name in project["optional-dependencies"]["console"]}
    assert wanted == set(install.EXTRAS["console"][0])
    assert set(install.EXTRAS) <= set(project["optional-dependencies"])


def test_a_replaced_urllib3_is_noticed() -> None:
    assert list(install.urllib3_items({"urllib3"})) == []
    (found,) = install.urllib3_items({"urllib3", "urllib3_future"})
    assert found.level == "warn"
    assert "URLLIB3_NO_OVERRIDE=1" in found.way_out


def test_a_program_that_the_stack_would_start_is_a_warning_where_it_is_missing() -> None:
    found = list(install.program_items({"prometheus": "/usr/bin/prometheus", "alertmanager": None}))
    assert levels(found) == [("prometheus", "ok"), ("alertmanager", "warn")]
    assert found[1].way_out == "Debian, Ubuntu: apt install prometheus-alertmanager"


@pytest.mark.slow
def test_the_report_of_this_machines_torch_is_read() -> None:
    told = install.ask("torch", 120)
    assert told.data
    assert told.data["torch"]
    assert "gloo" in told.data["backends"]


@pytest.mark.parametrize(
    ("program", "seconds", "problem"),
    [
        ("import sys, time; time.sleep(60)", 0.3, "no answer within 0 s"),
        ("import sys; sys.exit('the driver is gone')", 30, "the driver is gone"),
        ("import os; os.abort()", 30, "exit code -6"),
    ],
)
def test_a_report_that_hangs_or_dies_is_said(tmp_path: Path, program: str, seconds: float, problem: str) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}"\n')
    python.chmod(0o755)
    assert install.ask("torch", seconds, str(python)) == Told(None, problem)


def test_a_python_that_is_not_there_is_said() -> None:
    assert (
        install.ask("torch", 5, "/nowhere/python").problem == "/nowhere/python cannot be run: No such file or directory"
    )


# --- the environment -------------------------------------------------------------------------------------------------


def test_a_misspelled_variable_fails_with_the_name_that_is_meant() -> None:
    (found,) = settings.look({"LASTGOOD_REPLAY_EVRY": "5", "HOME": "/root"})
    assert (found.level, found.way_out) == ("fail", "did you mean LASTGOOD_REPLAY_EVERY?")
    (strange,) = settings.look({"LASTGOOD_XYZZY": "1"})
    assert strange.way_out == "unset it, or see docs/settings.md for the names"


def test_a_value_outside_its_rule_fails_with_the_rule() -> None:
    (found,) = settings.look({"LASTGOOD_REPLAY_EVERY": "often"})
    assert found.level == "fail"
    assert found.says == "LASTGOOD_REPLAY_EVERY='often': expected a whole number"
    (found,) = settings.look({"LASTGOOD_DEVICES": "fake:cold"})
    assert all(mode in found.says for mode in MODES)


def test_no_secret_is_shown() -> None:
    secrets = {"LASTGOOD_TOKEN": "s3cret", "LASTGOOD_PUSH_BASIC_AUTH": "me:s3cret", "LASTGOOD_WEBHOOK_SECRET": "s3cret"}
    found = list(settings.look(secrets))
    assert levels(found) == [("environment", "ok")]
    assert "s3cret" not in json.dumps(item.document(found))


def test_every_variable_of_the_code_is_known() -> None:
    import re

    root = Path(__file__).parents[2]
    text = "\n".join(path.read_text() for folder in ("exporter", "app") for path in (root / folder).rglob("*.py"))
    named = set(re.findall(r"[\"'](LASTGOOD_[A-Z_]+[A-Z])[\"']", text))
    assert "LASTGOOD_RUNS" in named
    assert named <= set(settings.known())


# --- the run directory -----------------------------------------------------------------------------------------------


def test_a_directory_that_works_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    found = run_directory.look(str(tmp_path))
    assert found[0] == Item(
        "run directory", "ok", f"{tmp_path}: exclusive creation, append, fsync, rename and flock work"
    )
    assert item.worst([i for i in found if i.name != "file system"]) == "ok"
    assert list(tmp_path.iterdir()) == []


def test_one_that_does_not_exist_yet_is_not_made(tmp_path: Path) -> None:
    found = run_directory.look(str(tmp_path / "a" / "b"))
    assert (found[0].level, found[0].says) == ("ok", f"{tmp_path}/a/b does not exist yet and can be made")
    assert list(tmp_path.iterdir()) == []


def test_an_object_store_is_no_run_directory() -> None:
    (found,) = run_directory.look("s3://bucket/runs")
    assert (found.level, found.says) == ("fail", "s3://bucket/runs is an object store")


def test_a_file_in_its_place_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run_directory.look(str(tmp_path / "file"))[0].level == "fail"


@pytest.mark.parametrize(
    ("failed", "level", "words"),
    [
        ((("write", "Read-only file system"),), "fail", "cannot be written: Read-only file system"),
        ((("rename", "Operation not supported"),), "fail", "is no POSIX file system: rename: Operation not supported"),
        ((("exclusive creation", "a name could be taken twice"),), "fail", "exclusive creation: a name could be taken"),
        ((("flock", "No locks available"),), "warn", "flock: No locks available"),
    ],
)
def test_what_does_not_work_there_is_named(failed: Any, level: str, words: str) -> None:
    found = next(run_directory.judged(Tried(Path("/shared"), True, "lustre", failed)))
    assert found.level == level
    assert words in found.says
    assert found.way_out


@pytest.mark.parametrize(
    ("filesystem", "level", "words"),
    [("nfs4", "warn", "up to a minute late"), ("tmpfs", "warn", "gone with the node"), ("ext4", "ok", "ext4")],
)
def test_the_file_system_is_judged(filesystem: str, level: str, words: str) -> None:
    found = list(run_directory.judged(Tried(Path("/shared"), True, filesystem)))[1]
    assert found.level == level
    assert words in found.says


def test_the_longest_mount_point_holds_a_path(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/a / ext4 rw 0 0\nnas:/x /shared nfs4 rw 0 0\nt /shared/my\\040runs tmpfs rw 0 0\n")
    named = {
        name: run_directory.filesystem_of(Path(name), mounts) for name in ("/home", "/shared/a", "/shared/my runs/b")
    }
    assert list(named.values()) == ["ext4", "nfs4", "tmpfs"]
    assert run_directory.filesystem_of(Path("/"), tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("seconds", "level"), [(0.0, "ok"), (1.9, "ok"), (-2.5, "warn"), (61.0, "fail"), (-900.0, "fail")]
)
def test_a_clock_that_is_off_is_told(seconds: float, level: str) -> None:
    found = run_directory.skew_item("clock of prometheus", seconds)
    assert found.level == level
    assert level == "ok" or ("ahead of" in found.says) is (seconds > 0)


# --- ports, console, Prometheus --------------------------------------------------------------------------------------


@pytest.fixture
def console(tmp_path: Path) -> Iterator[str]:
    """A real ``lastgood serve`` with the token "right"."""
    runs = tmp_path / "runs"
    runs.mkdir()
    ledger = Ledger([runs], state_dir=tmp_path / "state")
    ledger.refresh()
    server = make_server("127.0.0.1", 0, ledger, EventIntake(tmp_path / "state", ledger, "right"))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def tried(environ: Mapping[str, str]) -> dict[str, Item]:
    return {found.name: found for found in network.look(environ, None)}


def test_a_console_that_takes_events_is_in_order(console: str) -> None:
    found = tried({"LASTGOOD_CONSOLE_URL": console, "LASTGOOD_TOKEN": "right"})
    assert (found["console"].level, found["console token"].level) == ("ok", "ok")
    assert found["console token"].says == "events are taken with LASTGOOD_TOKEN"


def test_a_wrong_token_fails_and_is_not_shown(console: str) -> None:
    found = tried({"LASTGOOD_CONSOLE_URL": console, "LASTGOOD_TOKEN": "wr0ng"})
    assert (found["console"].level, found["console token"].level) == ("ok", "fail")
    assert "set the same LASTGOOD_TOKEN" in found["console token"].way_out
    assert "wr0ng" not in json.dumps(item.document(list(found.values())))


def test_a_console_that_is_not_there_fails_quickly() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        began = time.monotonic()
        found = tried({"LASTGOOD_CONSOLE_URL": url})
    assert (found["console"].level, "console token" in found) == ("fail", False)
    assert "Connection refused" in found["console"].says
    assert time.monotonic() - began < 10


def test_an_address_that_is_none_fails() -> None:
    found = tried({"LASTGOOD_CONSOLE_URL": "console:8490"})
    assert (found["console"].level, found["console"].way_out[:15]) == ("fail", "give an address")


def answer(data: Any, status: int = 200, began: float = 100.0, ended: float = 100.1) -> Answer:
    return Answer(status, json.dumps(data).encode(), "", began, ended)


def test_something_else_on_the_consoles_address_is_told() -> None:
    assert levels(network.console_items("http://x", answer({"status": "up"}), None, False)) == [("console", "fail")]
    (found,) = network.console_items("http://x", Answer(502, b"<html>"), None, False)
    assert "status 502" in found.says


def test_a_console_that_no_longer_reads_is_told() -> None:
    stale = answer({"status": "stale", "version": "1", "runs": 2, "last_read_age_seconds": 99}, 503)
    assert levels(network.console_items("http://x", stale, None, False)) == [("console", "warn")]


def test_taken_ports_of_ranks_are_counted_and_none_left_fails() -> None:
    free = network.rank_port_item(9470, "", lambda port: "taken" if port < 9473 else "")
    assert free.says == "free from 9473 on all interfaces; 9470 to 9472 taken"
    assert network.rank_port_item(0, "127.0.0.1", lambda port: "").says == "any free one on 127.0.0.1"
    assert network.rank_port_item(9470, "", lambda port: "taken").level == "fail"
    assert network.rank_port_item(80, "10.9.9.9", lambda port: "Permission denied").level == "fail"


def test_a_taken_port_is_seen_as_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert network.taken(port, "127.0.0.1") == "taken"
    assert network.taken(port, "127.0.0.1") == ""


def test_the_consoles_port_may_be_free_ours_or_anothers() -> None:
    ours = answer({"status": "ok", "version": "1", "runs": 2, "last_read_age_seconds": 1})
    assert network.console_port_item("", lambda: ours).says == "8490 is free"
    assert network.console_port_item("taken", lambda: ours).level == "ok"
    assert network.console_port_item("taken", lambda: Answer(0, b"", "timed out")).level == "warn"


def scalar(value: float) -> dict[str, Any]:
    return {"data": {"resultType": "scalar", "result": [1, str(value)]}}


def vector(*values: float) -> dict[str, Any]:
    return {"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, str(v)]} for v in values]}}


def loaded(health: str = "ok") -> dict[str, Any]:
    other = {"name": "nodes", "rules": [{"name": "Other", "query": "up == 0", "health": "err"}]}
    watchdog = {"name": "Watchdog", "query": "vector(1)", "health": "ok"}
    rule = {"name": "ReplayMismatch", "query": "lastgood_incident_resume_step > -2", "health": health}
    return {"data": {"groups": [{"rules": [rule]}, other, {"name": "lastgood-itself", "rules": [watchdog]}]}}


def prometheus(now: float = 100.05, ranks: Any = None, runs: Any = None, rules: Any = None) -> dict[str, Item]:
    items = prometheus_items("http://p", answer(scalar(now)), answer(ranks or vector(8)),
                                     answer(runs or vector(1)), answer(rules or loaded()))  # fmt: skip
    return {found.name: found for found in items}


def test_a_prometheus_with_series_and_rules_is_in_order() -> None:
    found = prometheus()
    assert {i.level for i in found.values()} == {"ok"}
    assert (found["series of ranks"].says, found["alert rules"].says) == ("8", "2 of lastgood are loaded")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "abc", None, [1], 10**400, 7, "", {}])
def test_a_number_that_is_none_is_never_in_order(value: Any) -> None:
    odd = {"data": {"resultType": "scalar", "result": [1, value]}}
    asked = answer(odd)
    assert levels(prometheus_items("http://p", asked, asked, asked, asked)) == [("prometheus", "fail")]
    found = prometheus(ranks=odd, runs=odd)
    assert [(i.name, i.level) for i in found.values() if i.level != "ok"] == [
        ("series of ranks", "warn"), ("series of runs", "warn")
    ]  # fmt: skip
    assert found["series of ranks"].says == "cannot be told: the answer is none of Prometheus"


@pytest.mark.parametrize(
    "groups", [[5], [None], "x", {"a": 1}, [{"name": "lastgood", "rules": [5]}], [{"rules": {"a": 1}}]]
)
def test_rules_that_no_prometheus_gives_are_told(groups: Any) -> None:
    found = prometheus(rules={"data": {"groups": groups}})
    assert (found["alert rules"].level, found["alert rules"].says[:14]) == ("warn", "cannot be told")


def test_an_answer_that_failed_is_not_taken_for_nothing_there() -> None:
    broken, down = answer({"error": "x"}, 503), Answer(0, b"", "timed out")
    items = prometheus_items("http://p", answer(scalar(100.0)), broken, down, broken)
    says = {found.name: found.says for found in items}
    assert says["series of ranks"] == says["alert rules"] == "cannot be told: status 503"
    assert says["series of runs"] == "cannot be told: timed out"


BODIES = [
    b"[" * 99_999,
    b"1" * 5000,
    b"NaN",
    b"[]",
    b"null",
    b"\xff",
    b"",
    b'{"data": null}',
    b'{"version": 1, "runs": "x"}',
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(body[:9]))
def test_json_that_nobody_reads_is_no_prometheus_and_no_console(body: bytes) -> None:
    odd = Answer(200, body)
    assert levels(prometheus_items("http://p", odd, odd, odd, odd)) == [("prometheus", "fail")]
    assert levels(network.console_items("http://c", odd, None, False)) == [("console", "fail")]


def test_what_a_server_says_is_short_and_steers_no_terminal() -> None:
    evil = "\x1b[31m" + "x" * 9_000
    health = answer({"version": evil, "runs": 1, "last_read_age_seconds": 1})
    for found in network.console_items("http://c", health, answer({"error": evil}, 400), False):
        assert "\x1b" not in found.says
        assert len(found.says) < 300


@pytest.fixture
def slow_server() -> Iterator[Callable[[Iterable[bytes]], str]]:
    """Return a way to serve pieces of bytes, whatever is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(pieces: Iterable[bytes]) -> None:
            with suppress(OSError), listening.accept()[0] as client:
                client.recv(65_536)
                for piece in pieces:
                    client.sendall(piece)

        def start(pieces: Iterable[bytes]) -> str:
            threading.Thread(target=serve, args=(pieces,), daemon=True).start()
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield start


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("head", [HEAD + b"Content-Length: 9999\r\n\r\n", HEAD + b"X-Name: "])
def test_an_answer_that_drips_has_one_bound_as_a_whole(
    head: bytes, slow_server: Callable[[Iterable[bytes]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dripping() -> Iterator[bytes]:
        yield head
        for _ in range(40):
            time.sleep(0.05)
            yield b"x"

    monkeypatch.setattr(network, "SECONDS", 0.3)
    began = time.monotonic()
    found = network.fetch(slow_server(dripping()), "/", "GET", {})
    assert (found.status, found.problem) == (0, "no whole answer within 0.3 s")
    assert time.monotonic() - began < 1.5
    time.sleep(2)  # until the other side has ended, so that its end falls into no other test


def test_an_answer_that_is_not_http_is_said_on_one_line(slow_server: Callable[[Iterable[bytes]], str]) -> None:
    found = network.fetch(slow_server([b"\x00\x1b[31m\r\nX\r\n\r\n"]), "/", "GET", {})
    assert found.status == 0
    assert found.problem.replace("\ufffd", "").isprintable()


def test_an_answer_without_end_is_not_kept(
    slow_server: Callable[[Iterable[bytes]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "MOST_BYTES", 1 << 20)
    url = slow_server([HEAD + b"Content-Length: 9000000000\r\n\r\n", *[b" " * 100_000] * 50])
    assert network.fetch(url, "/", "GET", {}).problem == "its answer is longer than 1 MiB"


@pytest.mark.parametrize(
    "url", ["http://mira:pw-1@h", "http://[::1", "http://a..b", f"http://{'a' * 300}", "http://x\ny"]
)
def test_an_address_that_cannot_be_asked_fails_and_shows_no_password(url: str) -> None:
    for found in (tried({"LASTGOOD_CONSOLE_URL": url})["console"], list(network.look({}, url))[-1]):
        assert (found.level, found.way_out) == ("fail", "give an address that starts with http:// or https://")
        assert "pw-1" not in found.says


@pytest.mark.parametrize("host", ["\udcff", "a..b", "a" * 300, "a\0b"])
def test_a_host_that_can_be_none_is_said(host: str) -> None:
    assert network.taken(0, host) == "no host has such a name"


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "b" * 5000, "there/" + "a" * 300])
def test_a_path_that_cannot_be_used_is_an_item_of_its_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    (found,) = run_directory.look(name)
    assert (found.level, "File name too long" in found.says) == ("fail", True)
    assert len(found.says) < 300


@pytest.mark.parametrize(
    ("changes", "name", "level"),
    [
        ({"ranks": vector()}, "series of ranks", "warn"),
        ({"runs": vector()}, "series of runs", "warn"),
        ({"rules": {"data": {"groups": []}}}, "alert rules", "warn"),
        ({"rules": loaded("err")}, "alert rules", "fail"),
        ({"now": 400.0}, "clock of prometheus", "fail"),
        ({"now": 97.0}, "clock of prometheus", "warn"),
    ],
)
def test_what_a_prometheus_lacks_is_told(changes: Any, name: str, level: str) -> None:
    found = prometheus(**changes)
    assert found[name].level == level
    assert found[name].way_out
    assert [i.name for i in found.values() if i.level != "ok"] == [name]


def test_a_server_that_is_no_prometheus_fails() -> None:
    nothing = answer({"hello": 1})
    assert levels(prometheus_items("http://p", nothing, nothing, nothing, nothing)) == [("prometheus", "fail")]


# --- the command -----------------------------------------------------------------------------------------------------


def test_an_item_is_one_line_with_its_level_and_the_way_out() -> None:
    text = item.lines([item.ok("a", "fine"), item.warn("long", "odd", "do this")])
    assert text == ["ok    a    fine", "warn  long odd → do this", "\n1 ok, 1 warn, 0 fail"]


def test_the_document_says_the_worst(tmp_path: Path) -> None:
    assert item.document([item.ok("a", "b")])["worst"] == "ok"
    assert item.document([item.ok("a", "b"), item.fail("c", "d", "e"), item.warn("f", "g", "h")])["worst"] == "fail"


def test_the_run_directories_are_those_of_the_environment_when_none_is_given() -> None:
    assert usual({}) == ["runs"]
    assert usual({"LASTGOOD_RUNS": "/a:/b"}) == ["/a", "/b"]
    assert usual({"LASTGOOD_RUNS": "/a", "LASTGOOD_RUN_DIR": "/shared/llama"}) == ["/shared/llama"]


@pytest.mark.slow
def test_the_command_exits_1_when_something_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["worst"] in ("ok", "warn")
    monkeypatch.setenv("LASTGOOD_POLCY", "stop")
    assert main(["s3://bucket"]) == 1
    out = capsys.readouterr().out
    assert "fail  environment" in out
    assert "LASTGOOD_POLCY is no setting of lastgood → did you mean LASTGOOD_POLICY?" in out
    assert os.listdir(tmp_path) == []
