"""Push: samples carry their step's time, nothing is lost within the buffer, and training never waits."""

from __future__ import annotations

import base64
import logging
import math
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.conftest import Clock
from tests.exporter.push_sink import Sink, decode, receiving

from lastgood import config as settings_of
from lastgood.errors import ConfigError
from lastgood.push import NoPush, Pusher, next_pause, pusher_for
from lastgood.push_receiver import Receiver, TryLater, retry_after
from lastgood.push_wire import STALE, number, packer, request, series
from lastgood.rank_metrics import RankMetrics

MINE = {"run": "r", "rank": "3", "node": "node-b", "job": "lastgood", "instance": "node-b:3"}


@pytest.fixture
def sink() -> Iterator[Sink]:
    with receiving() as running:
        yield running


@pytest.fixture
def metrics(registry: CollectorRegistry, clock: Clock) -> RankMetrics:
    return RankMetrics(
        registry, run="r", rank=3, node="node-b", local_rank=1, gpu_uuid="cpu-1", attempt=1, version="0", clock=clock
    )


@pytest.fixture
def push(metrics: RankMetrics, clock: Clock, sink: Sink) -> Iterator[Callable[..., Pusher]]:
    """Return what starts a pusher to the sink; each is closed at the end."""
    started: list[Pusher] = []

    def start(url: str = "", **settings: Any) -> Pusher:
        auth = {key: settings.pop(key) for key in ("token", "basic_auth") if key in settings}
        pusher = Pusher(
            Receiver(url or sink.url, **auth), metrics, packer(), instance="node-b:3",
            on_error=metrics.error, clock=clock, **settings,
        )  # fmt: skip
        started.append(pusher)
        return pusher

    yield start
    for pusher in started:
        pusher.close()


def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def do_step(pusher: Pusher | NoPush, metrics: RankMetrics, clock: Clock, step: int, seconds: float = 10.0) -> None:
    clock.advance(seconds)
    metrics.step(step, seconds, None)
    pusher.step()


def errors(registry: CollectorRegistry) -> float | None:
    labels = {"run": "r", "rank": "3", "node": "node-b", "part": "delivery"}
    return registry.get_sample_value("lastgood_exporter_errors_total", labels)


# --- the wire --------------------------------------------------------------------------------------------------------


def test_labels_are_sorted_and_an_empty_one_is_left_out() -> None:
    message = request([(series("a_total", {"z": "1", "B": "ü", "empty": ""}), number(1.5), 1_000)])
    [(labels, value, at)] = decode(message)
    assert list(labels.items()) == [("B", "ü"), ("__name__", "a_total"), ("z", "1")]
    assert (struct.unpack("<d", value)[0], at) == (1.5, 1_000)


@given(st.floats(), st.integers(-(2**63), 2**63 - 1), st.text(min_size=1))
def test_any_value_time_and_text_survive_the_wire(value: float, at: int, text: str) -> None:
    text = text.encode(errors="replace").decode()
    [(labels, found, when)] = decode(request([(series("a", {"l": text}), number(value), at)]))
    assert labels["l"] == text
    assert when == at % 2**64
    assert found == struct.pack("<d", value) or math.isnan(value)


def test_a_nan_of_the_training_never_looks_like_the_end_of_a_series() -> None:
    ending = struct.unpack("<d", STALE)[0]
    assert math.isnan(ending)
    assert number(ending) == number(math.nan) == bytes.fromhex("010000000000f87f")
    assert bytes.fromhex("020000000000f07f") == STALE


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_a_step_is_sent_with_all_series_at_the_time_it_ended(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink
) -> None:
    do_step(push(), metrics, clock, 7)
    clock.advance(3)
    until(lambda: sink.taken)
    scraped = {sample.name for family in metrics.collect() for sample in family.samples}
    assert {labels["__name__"] for labels, _, _ in sink.taken[0]} == scraped
    assert {at for _, _, at in sink.taken[0]} == {round(1000 * (clock.now - 3))}
    assert all(MINE.items() <= labels.items() and list(labels) == sorted(labels) for labels, _, _ in sink.taken[0])
    assert sink.values("lastgood_step") == [(7.0, round(1000 * (clock.now - 3)))]
    assert sink.heads[0]["X-Prometheus-Remote-Write-Version"] == "0.1.0"
    assert sink.heads[0]["Content-Encoding"] == "snappy"


def test_at_most_one_step_per_interval_and_the_last_one_always(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink
) -> None:
    pusher = push(interval=10)
    for step in range(1, 10):
        do_step(pusher, metrics, clock, step, seconds=4)
    ended = clock.now
    clock.advance(1)
    pusher.close()
    steps = [value for value, _ in sink.values("lastgood_step") if not math.isnan(value)]
    assert steps == [1, 4, 7, 9]
    for (value, at), (stamp, _) in zip(
        sink.values("lastgood_step")[:4], sink.values("lastgood_step_timestamp_seconds")[:4], strict=True
    ):
        assert at == round(1000 * stamp), value
    assert sink.values("lastgood_step")[3][1] == round(1000 * ended)


def test_at_the_end_every_series_is_ended_and_what_changed_after_the_last_step_is_there(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink
) -> None:
    pusher = push()
    do_step(pusher, metrics, clock, 100)
    clock.advance(0.5)
    metrics.check("replay", "failed", 100)
    pusher.close()
    failures = sink.values("lastgood_check_failures_total", check="replay")
    assert [value for value, _ in failures[:2]] == [0, 1]
    assert failures[1][1] == round(1000 * clock.now)
    first = {tuple(labels.items()) for labels, _, _ in sink.taken[0]}
    ended = [(labels, at) for labels, value, at in sink.taken[-1] if value == STALE]
    assert {tuple(labels.items()) for labels, _ in ended} == first
    assert {at for _, at in ended} == {round(1000 * clock.now) + 1}
    assert sum(len(message) for message in sink.taken) - len(first) == pusher.sent
    assert pusher.lost == 0


def test_a_series_that_is_gone_is_ended_with_the_next_step(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink
) -> None:
    pusher = push()
    do_step(pusher, metrics, clock, 1)
    until(lambda: sink.taken)
    del metrics._values["grad_norm"][("reduced",)]
    do_step(pusher, metrics, clock, 2)
    until(lambda: len(sink.taken) == 2)
    assert [labels["stage"] for labels, value, _ in sink.taken[1] if value == STALE] == ["reduced"]


def test_while_no_step_ends_the_values_are_sent_again_so_that_a_hang_can_be_seen(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink
) -> None:
    pusher = push(repeat=0.05)
    do_step(pusher, metrics, clock, 1)
    clock.advance(30)
    until(lambda: len(sink.taken) >= 3)
    again = [at for value, at in sink.values("lastgood_step") if value == 1.0]
    assert again[1] == round(1000 * clock.now)
    assert again == sorted(set(again))


def test_a_clock_that_is_set_back_makes_no_sample_older_than_the_one_before(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink
) -> None:
    pusher = push()
    do_step(pusher, metrics, clock, 1)
    do_step(pusher, metrics, clock, 2, seconds=-3600)
    pusher.close()
    times = [at for _, at in sink.values("lastgood_step")]
    assert times == sorted(set(times))


# --- what a receiver answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_cannot_be_taken_now_is_sent_again_and_nothing_is_lost(
    push: Callable[..., Pusher],
    metrics: RankMetrics,
    clock: Clock,
    sink: Sink,
    registry: CollectorRegistry,
    status: int,
) -> None:
    sink.answers = [(status, {}, "later")]
    pusher = push()
    do_step(pusher, metrics, clock, 1)
    do_step(pusher, metrics, clock, 2)
    until(lambda: len(sink.taken) == 2)
    assert [value for value, _ in sink.values("lastgood_step")] == [1, 2]
    assert (pusher.lost, errors(registry)) == (0, 0)


@pytest.mark.parametrize("status", [302, 400, 401, 404, 413])
def test_what_is_refused_is_counted_said_once_and_not_sent_again(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink, registry: CollectorRegistry,
    caplog: pytest.LogCaptureFixture, status: int,
) -> None:  # fmt: skip
    sink.answers = [(status, {}, "out of order sample")] * 2
    pusher = push()
    with caplog.at_level(logging.WARNING, logger="lastgood"):
        for step in (1, 2, 3):
            do_step(pusher, metrics, clock, step)
        until(lambda: pusher.sent)
    assert [value for value, _ in sink.values("lastgood_step")] == [3]
    each = pusher.sent
    assert (pusher.lost, errors(registry)) == (2 * each, 2)
    assert [record.getMessage().count(f"answered {status} out of order sample") for record in caplog.records] == [1]


def test_retry_after_is_heeded(push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink) -> None:
    sink.answers = [(429, {"Retry-After": "2"}, "")]
    start = time.monotonic()
    do_step(push(), metrics, clock, 1)
    until(lambda: sink.taken)
    assert time.monotonic() - start >= 2


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after("120", 0) == 120
    assert retry_after("Sun, 29 Nov 2026 02:59:02 GMT", 1_795_921_082) == 60
    assert [retry_after(text, 1e12) for text in (None, "", "soon", "-3", "Sun, 29 Nov 2026 02:59:02 GMT")] == [0] * 5


def test_pauses_double_up_to_half_a_minute_and_differ_between_ranks() -> None:
    pauses = [0.0]
    for _ in range(7):
        pauses.append(next_pause(pauses[-1], OSError(), 1.0))
    assert pauses[1:] == [1, 2, 4, 8, 16, 30, 30]
    assert next_pause(30, OSError(), 0.0) == 15
    assert next_pause(0, TryLater("", after=7), 0.0) == 7
    assert next_pause(0, TryLater("", after=1e9), 0.0) == 300


def test_a_token_or_a_login_goes_into_the_header_and_nowhere_else(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.answers = [(401, {}, "no")] * 2
    for auth in ({"token": "s3cret"}, {"basic_auth": "me:s3cret"}):
        do_step(push(**auth), metrics, clock, 1)
    until(lambda: len(sink.heads) == 2)
    basic = base64.b64encode(b"me:s3cret").decode()
    assert {head["Authorization"] for head in sink.heads} == {"Bearer s3cret", f"Basic {basic}"}
    assert "s3cret" not in caplog.text
    assert basic not in caplog.text


def test_a_query_in_the_address_is_sent_and_not_shown(sink: Sink) -> None:
    receiver = Receiver(f"{sink.url}?tenant=7")
    receiver.send(packer()(b""), 5)
    receiver.rest()
    assert sink.paths == ["/api/v1/write?tenant=7"]
    assert receiver.shown == sink.url


# --- a receiver that is away -----------------------------------------------------------------------------------------


def test_a_receiver_that_comes_back_gets_every_step_it_missed(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, registry: CollectorRegistry
) -> None:
    with receiving() as first:
        pusher = push(first.url)
        do_step(pusher, metrics, clock, 1)
        until(lambda: first.taken)
    for step in range(2, 6):
        do_step(pusher, metrics, clock, step)
    with receiving(port=first.port) as second:
        until(lambda: len(second.taken) == 4)
    assert [value for value, _ in second.values("lastgood_step")] == [2, 3, 4, 5]
    assert (pusher.lost, errors(registry)) == (0, 0)


def test_beyond_the_buffer_the_oldest_go_and_are_counted(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink, registry: CollectorRegistry
) -> None:
    sink.gate.clear()
    pusher = push(buffer=5)
    do_step(pusher, metrics, clock, 1)
    until(lambda: pusher._in_hand)
    for step in range(2, 10):
        do_step(pusher, metrics, clock, step)
    assert errors(registry) == 3
    sink.gate.set()
    until(lambda: len(sink.taken) == 6)
    assert [value for value, _ in sink.values("lastgood_step")] == [1, 5, 6, 7, 8, 9]
    assert pusher.lost == 3 * len(sink.taken[0])
    pusher.close()
    counted = [value for value, _ in sink.values("lastgood_exporter_errors_total", part="delivery")]
    assert counted[-2] == 3  # before the stale marker


def test_the_end_takes_a_second_at_most_when_the_receiver_hangs_and_the_loss_is_said(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, registry: CollectorRegistry,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pusher = push(f"http://127.0.0.1:{silent.getsockname()[1]}/write")
        do_step(pusher, metrics, clock, 1)
        do_step(pusher, metrics, clock, 2)
        start = time.monotonic()
        pusher.close()
        assert time.monotonic() - start < 1.5
        pusher.close()
    assert errors(registry) == 2
    assert pusher.lost == 2 * len(metrics.freeze())
    assert f"{pusher.lost} of {pusher.lost} samples did not reach" in caplog.text


def test_a_receiver_that_is_not_there_delays_neither_a_step_nor_the_end(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock
) -> None:
    pusher = push("http://127.0.0.1:9/write")
    start = time.monotonic()
    for step in range(1000):
        do_step(pusher, metrics, clock, step)
    pusher.close()
    assert time.monotonic() - start < 2
    assert pusher.sent == 0


def test_at_the_end_what_cannot_be_taken_is_tried_once_more_and_no_oftener(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink
) -> None:
    sink.answers = [(503, {}, "")] * 1000
    pusher = push()
    do_step(pusher, metrics, clock, 1)
    until(lambda: sink.heads)
    pusher.close()
    assert len(sink.heads) <= 2
    assert pusher.lost == len(metrics.freeze())


def test_steps_after_the_end_are_not_taken(
    push: Callable[..., Pusher], metrics: RankMetrics, clock: Clock, sink: Sink
) -> None:
    pusher = push()
    do_step(pusher, metrics, clock, 1)
    pusher.end()
    do_step(pusher, metrics, clock, 2)
    pusher.close()
    assert [value for value, _ in sink.values("lastgood_step") if not math.isnan(value)] == [1]


def test_a_forked_worker_neither_pushes_nor_ends_the_series_of_its_parent(sink: Sink) -> None:
    script = (
        "import os, sys, threading, time\nfrom prometheus_client import CollectorRegistry\n"
        "from lastgood.push import Pusher\nfrom lastgood.push_receiver import Receiver\n"
        "from lastgood.push_wire import packer\nfrom lastgood.rank_metrics import RankMetrics\n"
        "m = RankMetrics(CollectorRegistry(), run='r', rank=0, node='n', local_rank=0, gpu_uuid='c', attempt=1, "
        "version='0')\n"
        "p = Pusher(Receiver(sys.argv[1]), m, packer(), instance='i', interval=0)\n"
        "m.step(1, None, None)\np.step()\n"
        "while not p.sent: time.sleep(0.01)\n"
        "held = threading.Event()\n"
        "def hold():\n    with p._changed:\n        held.set()\n        time.sleep(0.5)\n"
        "threading.Thread(target=hold).start()\nheld.wait()\n"  # as the pusher's own thread may hold it
        "pid = os.fork()\n"
        "if pid == 0:\n    m.step(9, None, None)\n    p.step()\n    p.end()\n    p.close()\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\nm.step(2, None, None)\np.step()\np.close()\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, sink.url], check=True, timeout=30)
    assert [value for value, _ in sink.values("lastgood_step") if not math.isnan(value)] == [1, 2]


# --- settings --------------------------------------------------------------------------------------------------------


def test_without_an_address_nothing_is_pushed(metrics: RankMetrics) -> None:
    pusher = pusher_for(settings_of.load({}), metrics, "i", metrics.error)
    assert isinstance(pusher, NoPush)
    pusher.step()
    pusher.end()
    pusher.close()
    assert (pusher.sent, pusher.lost) == (0, 0)


def test_without_the_extra_there_is_one_warning_and_training_goes_on(
    metrics: RankMetrics, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    config = settings_of.load({"LASTGOOD_PUSH_URL": "http://127.0.0.1:9/write"})
    assert isinstance(pusher_for(config, metrics, "i", metrics.error), NoPush)
    assert "pip install 'lastgood[push]'" in caplog.text
    assert errors(registry) == 1


def test_settings_of_a_push_come_from_the_environment_and_secrets_stay_out_of_the_journal() -> None:
    config = settings_of.load(
        {"LASTGOOD_PUSH_URL": "https://p/write?key=1", "LASTGOOD_PUSH_TOKEN": "s3cret", "LASTGOOD_PUSH_SECONDS": "2"}
    )
    assert (config.push_url, config.push_token, config.push_seconds) == ("https://p/write?key=1", "s3cret", 2.0)
    assert config.journaled()["push_url"] == "https://p/write"
    assert "s3cret" not in repr(config)
    assert not {"token", "push_token", "push_basic_auth"} & config.journaled().keys()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"push_url": "prometheus:9090"}, "push_url 'prometheus:9090' must look like http://"),
        ({"push_url": "ftp://me:s3cret@p/write"}, "push_url 'ftp://p/write' must look like http://"),
        ({"push_url": "https://me:s3cret@p/write"}, "push_url holds a login"),
        ({"push_url": "http://p/write?key=s3\n"}, "must look like http://"),
        ({"push_token": "s3cret", "push_basic_auth": "me:s3cret"}, "are both set"),
        ({"push_basic_auth": "s3cret"}, "has no colon"),
        ({"push_token": "s3cret\n"}, "push_token has characters that no token has"),
        ({"push_seconds": -1}, "push_seconds=-1: expected 0 or more seconds"),
    ],
)
def test_a_push_that_could_not_work_is_refused_before_the_first_step(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of.load({}, **settings)
    assert complaint in str(caught.value)
    assert "s3cret" not in str(caught.value)
