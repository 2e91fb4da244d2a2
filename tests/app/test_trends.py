"""Trends out of a metrics server: which moments are asked for, how often, and what comes of an answer."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
from tests.app.metrics_server import Asked, Metrics, slowly
from tests.app.pages import NOW
from tests.conftest import Clock
from tests.e2e.real_servers import wait_for
from tests.exporter.test_scenarios import gradient

from lastgood_console.sources.client import PrometheusClient, Result, Series
from lastgood_console.sources.trends import METRICS, MOST_POINTS, Span, Trends, expression, points_of, span_of, trend


def test_a_span_has_few_points_and_ends_with_the_newest_moment() -> None:
    state = gradient().state()
    (incident,) = state.incidents
    for now in (NOW, NOW + 3600, NOW + 90 * 86400):
        span = span_of(state, incident, now)
        assert 1 < len(span.times) <= MOST_POINTS
        assert span.times[-1] == now


@pytest.mark.parametrize("late", [0.0, 1.0, 3.0, 4.0, 6.0])
def test_an_answer_at_other_moments_than_asked_for_is_shown_at_its_own(late: float) -> None:
    """VictoriaMetrics moves the moments to multiples of the step."""
    span = Span(1000.0, 7.0, 5)
    at = [span.low + late - 7.0 + 7.0 * i for i in range(7)]
    answer = Result((Series({"line": "suspect"}, tuple((t, 5.0) for t in at)),
                     Series({"line": "p10"}, tuple((t, 4.0) for t in at[3:]))))  # fmt: skip
    found = trend(METRICS[0], 3, span, answer, NOW)
    assert found is not None
    assert found.suspect == (5.0,) * 5
    assert set(found.times) <= set(at)
    assert abs(found.times[-1] - span.times[-1]) <= span.step / 2
    assert [value is None for value in found.p10] == [t < at[3] for t in found.times]


def test_a_large_run_is_looked_at_at_fewer_moments_and_by_a_fifth_of_its_ranks() -> None:
    assert [points_of(ranks) for ranks in (0, 6, 2048, 4096, 16_384, 100_000)] == [240, 240, 240, 120, 150, 60]
    state, (incident,) = gradient().state(), gradient().state().incidents
    span = span_of(state, incident, NOW)
    few, many = (expression(METRICS[0], state.run, incident.suspects[0], span, ranks) for ranks in (4096, 16_384))
    assert few == expression(METRICS[0], state.run, incident.suspects[0], span)
    (matcher,) = set(re.findall(r'rank=~"([^"]+)"', many))
    chosen = [rank for rank in range(16_384) if re.fullmatch(matcher, str(rank))]
    assert len(chosen) == pytest.approx(16_384 / 5, abs=2)
    for slots in (2, 3, 4, 6, 8, 16):
        of_slot = [sum(rank % slots == slot for rank in chosen) for slot in range(slots)]
        assert max(of_slot) - min(of_slot) <= 2
    large = replace(state, attempts=tuple(replace(a, world_size=16_384) for a in state.attempts))
    assert len(span_of(large, incident, NOW).times) <= 150


def test_a_server_that_takes_long_is_asked_less_often(metrics: Metrics, clock: Clock) -> None:
    def answer(asked: Asked) -> tuple[int, bytes]:
        time.sleep(0.5)
        return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode()

    metrics.answer = answer
    trends, state = Trends(PrometheusClient(metrics.url), clock), gradient().state()
    for passes, times in ((0.0, 1), (16.0, 1), (1000.0, 2)):  # one look takes 2 s, so the next may come after 20
        clock.advance(passes)
        trends.of(state, state.incidents[0])
        wait_for(lambda: not trends._asking, 10)
        assert len(metrics.asked) == times * len(METRICS)


def test_a_hostile_node_name_stays_inside_its_quotes() -> None:
    (incident,) = gradient().state().incidents
    evil = replace(incident.suspects[0], node='x"} or vector(1) #\n')
    query = expression(METRICS[0], "llama-7b", evil, span_of(gradient().state(), incident, NOW))
    assert r'node="x\"} or vector(1) #\n"' in query
    assert "\n" not in query


def test_a_page_waits_once_and_not_long_and_a_dead_server_is_left_alone(metrics: Metrics, clock: Clock) -> None:
    metrics.answer = slowly(3, 500)
    trends, state = Trends(PrometheusClient(metrics.url), clock), gradient().state()
    waits = []
    for _ in range(4):
        began = time.monotonic()
        assert trends.of(state, state.incidents[0]) == ()
        waits.append(time.monotonic() - began)
    assert 1.4 < waits[0] < 2.5
    assert max(waits[1:]) < 0.2
    assert len(metrics.asked) == 1


def test_trends_are_asked_for_again_only_when_they_are_old(metrics: Metrics, clock: Clock) -> None:
    metrics.says({"status": "success", "data": {"resultType": "matrix", "result": []}})
    trends, state = Trends(PrometheusClient(metrics.url), clock), gradient().state()
    trends.of(state, state.incidents[0])
    first = len(metrics.asked)
    trends.of(state, state.incidents[0])
    assert len(metrics.asked) == first == len(METRICS)
    clock.advance(20)
    trends.of(state, state.incidents[0])
    deadline = time.monotonic() + 5
    while len(metrics.asked) < 2 * first and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(metrics.asked) == 2 * first
