"""Delivery: events reach a real HTTP server, or are given up without slowing anybody down."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from lastgood.delivery import BATCH_EVENTS, QUEUE_EVENTS, Delivery, NoDelivery
from lastgood.errors import ConfigError
from lastgood.events import Event, event_from_dict, utc


def event(n: int) -> Event:
    return Event(f"rank-0-{n}", "/lastgood/llama/1/rank/0", "note", utc(n), "llama", 1, {"text": str(n)})


class Console:
    """A real HTTP server that remembers what was posted and answers with ``status``."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str], list[Any]]] = []
        self.status = 200
        self.gate = Flag()
        self.gate.set()
        console = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                console.gate.wait(10)
                console.posts.append((self.path, dict(self.headers.items()), body))
                self.send_response(console.status)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def texts(self) -> list[str]:
        return [event_from_dict(item).data["text"] for _, _, body in self.posts for item in body]


@contextmanager
def serving(console: Console) -> Iterator[Console]:
    thread = Thread(target=console.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield console
    finally:
        console.gate.set()
        console.server.shutdown()
        console.server.server_close()
        thread.join()


@pytest.fixture
def console() -> Iterator[Console]:
    with serving(Console()) as running:
        yield running


def until(condition: Any, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_an_event_is_posted_at_once_with_the_token(console: Console) -> None:
    delivery = Delivery(f"{console.url}/base/", "secret")
    delivery.post(event(1))
    until(lambda: console.posts)
    path, headers, body = console.posts[0]
    assert path == "/base/api/events"
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/cloudevents-batch+json"
    assert event_from_dict(body[0]) == event(1)
    delivery.close(10)


def test_what_is_queued_at_the_end_is_sent_in_order_and_in_batches(console: Console) -> None:
    delivery = Delivery(console.url)
    for n in range(3 * BATCH_EVENTS):
        delivery.post(event(n))
    delivery.close(10)
    assert console.texts() == [str(n) for n in range(3 * BATCH_EVENTS)]
    assert all(len(body) <= BATCH_EVENTS for _, _, body in console.posts)


def test_large_events_travel_in_small_batches(console: Console) -> None:
    delivery = Delivery(console.url, timeout=10)
    for n in range(4):
        delivery.post(Event(str(n), "/x", "note", utc(n), "llama", 1, {"text": str(n), "more": "x" * 600_000}))
    delivery.close(10)
    assert console.texts() == ["0", "1", "2", "3"]
    assert all(len(body) == 1 for _, _, body in console.posts)


def test_closing_takes_no_longer_than_its_budget_when_the_console_hangs(console: Console) -> None:
    console.gate.clear()
    delivery = Delivery(console.url, timeout=30)
    delivery.post(event(1))
    start = time.monotonic()
    delivery.close(0.3)
    assert time.monotonic() - start < 2


def test_a_full_queue_drops_its_oldest_events_and_posting_never_waits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        delivery = Delivery(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=30)
        start = time.monotonic()
        for n in range(QUEUE_EVENTS + BATCH_EVENTS + 50):
            delivery.post(event(n))
        assert time.monotonic() - start < 5
        assert 50 <= delivery.dropped <= 50 + BATCH_EVENTS
        delivery.close(0.05)


def test_a_console_that_comes_back_gets_what_it_missed() -> None:
    console = Console()
    console.server.server_close()
    problems: list[BaseException] = []
    delivery = Delivery(console.url, on_error=problems.append)
    delivery.post(event(1))
    until(lambda: problems)
    assert isinstance(problems[0], ConnectionError)
    again = Console.__new__(Console)
    Console.__init__(again)
    delivery._target.address.port = again.server.server_address[1]
    with serving(again):
        delivery.post(event(2))
        delivery.close(10)
        assert again.texts() == ["1", "2"]
    assert (delivery.errors, delivery.dropped) == (1, 0)


def test_what_the_console_refuses_is_not_sent_again(console: Console) -> None:
    console.status = 401
    delivery = Delivery(console.url)
    delivery.post(event(1))
    until(lambda: delivery.dropped)
    console.status = 200
    delivery.post(event(2))
    delivery.close(10)
    assert console.texts() == ["1", "2"]
    assert (delivery.errors, delivery.dropped) == (1, 1)


def test_what_the_console_could_not_keep_is_sent_again(console: Console) -> None:
    console.status = 503
    delivery = Delivery(console.url)
    delivery.post(event(1))
    until(lambda: delivery.errors)
    console.status = 200
    delivery.close(10)
    assert console.texts() == ["1", "1"]
    assert delivery.dropped == 0


@pytest.mark.parametrize("url", ["", "console:8490", "ftp://x", "http://", "http://x:port", "http://[::1"])
def test_a_url_that_leads_nowhere_is_said_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="must look like http://"):
        Delivery(url)


def test_no_delivery_does_nothing() -> None:
    nothing = NoDelivery()
    nothing.post(event(1))
    nothing.close()
    assert (nothing.dropped, nothing.errors) == (0, 0)
