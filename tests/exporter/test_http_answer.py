"""A server that answers for ever, in drops or in floods, holds neither a thread nor memory."""

from __future__ import annotations

import http.client
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from prometheus_client import CollectorRegistry
from tests.conftest import Clock

from lastgood import http_answer, push
from lastgood.delivery import Delivery
from lastgood.events import Event, utc
from lastgood.http_address import HttpAddress
from lastgood.push import Pusher
from lastgood.push_receiver import Receiver
from lastgood.push_wire import packer
from lastgood.rank_metrics import RankMetrics

Answering = Callable[[socket.socket], object]

MOST_GROWN_KIB = 30_000


@contextmanager
def server(*answers: Answering) -> Iterator[tuple[str, list[int]]]:
    """Run a server meanwhile: its address, and the port of the client of every request. The last answer repeats."""
    clients: list[int] = []
    over = threading.Event()

    def serve(client: socket.socket, number: int) -> None:
        with client, suppress(OSError), client.makefile("rb") as words:
            while words.readline():
                size = 0
                while (line := words.readline().lower()) not in (b"\r\n", b""):
                    size = int(line.partition(b":")[2]) if line.startswith(b"content-length") else size
                words.read(size)
                clients.append(number)
                answers[min(len(clients), len(answers)) - 1](client)

    def listen(door: socket.socket) -> None:
        with suppress(OSError):
            while not over.is_set():
                client, (_, number) = door.accept()
                threading.Thread(target=serve, args=(client, number), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=listen, args=(door,), daemon=True).start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}/", clients
        over.set()


def fine(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")


def drops(first: bytes, drop: bytes) -> Answering:
    """Return an answer that never ends and is never silent for long."""

    def answer(client: socket.socket) -> None:
        client.sendall(first)
        while True:
            client.sendall(drop)
            time.sleep(0.05)

    return answer


def flood(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        client.sendall(b"10000\r\n" + b"x" * 65_536 + b"\r\n")


def interim_flood(client: socket.socket) -> None:
    while True:
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


DRIPS = {
    "status": drops(b"HTTP/1.1 200 ", b"O"),
    "headers": drops(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "interim": drops(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": drops(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n", b"x"),
    "chunks": drops(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "trailers": drops(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X: y\r\n"),
}


def ask(connection: http.client.HTTPConnection, seconds: float = 0.4) -> http_answer.Answer:
    return http_answer.post(connection, "/", b"words", {}, seconds=seconds, text_bytes=100)


def connection_to(url: str) -> http.client.HTTPConnection:
    return HttpAddress(url, "url", "").connection(5.0)


def grown_kib(before: int) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


@pytest.mark.parametrize("part", DRIPS)
def test_an_answer_in_drops_is_given_up_at_the_deadline_wherever_it_drips(part: str) -> None:
    with server(DRIPS[part]) as (url, _):
        connection, start = connection_to(url), time.monotonic()
        with pytest.raises(TimeoutError, match=r"no whole answer within 0\.4 s"):
            ask(connection)
        assert 0.3 < time.monotonic() - start < 1.5
        assert connection.sock is None


def test_of_an_endless_body_the_beginning_is_read_and_the_connection_closed() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with server(flood) as (url, _):
        connection = connection_to(url)
        answer = ask(connection, 5.0)
        assert (answer.status, answer.text) == (200, "x" * 100)
        assert connection.sock is None
    assert grown_kib(before) < MOST_GROWN_KIB


def test_an_answer_that_never_comes_to_its_point_is_given_up_at_its_size() -> None:
    with (
        server(interim_flood) as (url, _),
        pytest.raises(http.client.HTTPException, match="the answer is longer than 65536 bytes"),
    ):
        ask(connection_to(url), 5.0)


def test_a_connection_whose_answers_were_read_is_used_again_each_time_with_a_deadline_of_its_own() -> None:
    with server(fine, fine, DRIPS["body"], fine) as (url, clients):
        connection = connection_to(url)
        assert [ask(connection).text, ask(connection).text] == ["fine", "fine"]
        with pytest.raises(TimeoutError):
            ask(connection)
        assert ask(connection).text == "fine"
        connection.close()
    assert clients[0] == clients[1] == clients[2] != clients[3]


@pytest.mark.parametrize(
    "first", [DRIPS["headers"], DRIPS["body"], flood, interim_flood], ids=["headers", "body", "flood", "interim"]
)
def test_pushing_goes_on_after_an_endless_answer(
    first: Answering,
    registry: CollectorRegistry,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(push, "ANSWER_SECONDS", 0.3)
    metrics = RankMetrics(
        registry, run="r", rank=3, node="n", local_rank=1, gpu_uuid="", attempt=1, version="0", clock=clock
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with server(first, fine) as (url, clients):
        pusher = Pusher(Receiver(url), metrics, packer(), instance="node-b:3", clock=clock)
        for step in (1, 2):
            clock.advance(10)
            metrics.step(step, 10.0, None)
            pusher.step()
        deadline = time.monotonic() + 5
        while pusher.sent < 2 * len(metrics.freeze()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert pusher.sent == 2 * len(metrics.freeze())
        pusher.close()
        assert pusher.lost == 0
        assert clients[0] != clients[1]
    assert caplog.text.count("cannot push metrics") == (first is not flood)
    assert grown_kib(before) < MOST_GROWN_KIB


def test_delivery_goes_on_after_an_answer_in_drops() -> None:
    errors: list[BaseException] = []
    with server(DRIPS["body"], fine) as (url, clients):
        delivery = Delivery(url, timeout=0.3, on_error=errors.append)
        delivery.post(Event("rank-0-1", "/lastgood/llama/1/rank/0", "note", utc(1), "llama", 1, {"text": "1"}))
        deadline = time.monotonic() + 5
        while len(clients) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        delivery.close(5)
    assert len(clients) == 2
    assert [str(error) for error in errors] == ["no whole answer within 0.3 s"]
