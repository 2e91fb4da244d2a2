"""A suspect's metric beside its peers' over time: what is drawn, and the kinds of absence."""

from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest
from tests.app.fixtures import states
from tests.app.pages import NOW, markup, shown

from lastgood_console.components import trend_chart
from lastgood_console.components.time_frame import Frame
from lastgood_console.export.tokens import ThemeName
from lastgood_console.sources.trend import Trend
from lastgood_console.store import current


def power(**changes: Any) -> Trend:
    base: dict[str, Any] = {
        "metric": "power", "unit": "W", "rank": 3, "times": (0.0, 10.0, 20.0, 30.0, 40.0),
        "suspect": (700.0, 710.0, None, nan, 650.0), "median": (690.0,) * 5, "p10": (680.0,) * 5, "p90": (705.0,) * 5,
        "step_seconds": 10.0, "asked_at": NOW - 7,
    }  # fmt: skip
    return Trend(**(base | changes))


def test_a_trend_is_the_difference_from_the_median_in_its_own_unit() -> None:
    rows = trend_chart.series(power())
    assert [row["suspect"] for row in rows] == [10.0, 20.0, None, None, -40.0]
    assert [row["at"] for row in rows] == [0, 10_000, 20_000, 30_000, 40_000]
    assert (rows[0]["p10"], rows[0]["p90"]) == (-10.0, 15.0)


def test_no_sample_and_not_a_number_are_two_things() -> None:
    found = power(suspect=(None, None, 700.0, inf, None))
    assert trend_chart.gaps(found) == [(0.0, 10.0), (40.0, 40.0)]
    assert trend_chart.not_numbers(found) == [30.0]
    assert [row[1] for row in trend_chart.numbers(found)] == ["–", "–", "700", "× not a number", "–"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("suspect", [(700.0, 710.0, None, nan, 650.0), (None, None, None, None, 1.0), (690.0,) * 5])
def test_the_picture_holds_to_the_schema_and_says_what_is_absent(theme: ThemeName, suspect: Any) -> None:
    state = states.gradient()
    spec = json.dumps(trend_chart.trend_chart(power(suspect=suspect), state.incidents[0], theme).to_dict())
    assert ("not a number, 1 sample" in spec) == (nan in suspect)
    assert ("no sample" in spec) == (None in suspect)
    assert "+ ' W'" in spec


def test_a_sample_that_stands_alone_is_a_dot() -> None:
    incident = states.gradient().incidents[0]
    alone = power(suspect=(None, None, 700.0, None, None))
    many = power(**{name: (1.0,) * 100 for name in ("times", "suspect", "median", "p10", "p90")})
    drawn = [json.dumps(trend_chart.trend_chart(found, incident, "light").to_dict()) for found in (alone, many)]
    assert ['"point": {' in spec for spec in drawn] == [True, False]


def test_the_incident_shows_its_trends_with_their_age() -> None:
    from tests.app.pages import open_page

    state = states.gradient()
    assert "Power of rank 3" not in shown(open_page(state, page="incident"))
    app = open_page(state, page="incident")
    current().trends = lambda _state, _incident: (power(),)
    app.run()
    assert "Power of rank 3 less the median of its peers, by time · read 7 s ago" in shown(app)
    assert "× not a number" in markup(app)


def test_a_zoom_shows_the_samples_taken_in_it() -> None:
    found = power()
    first, last = found.times[0], found.times[-1]
    shown = trend_chart.within(found, Frame(found.times[1], last + 1, last, zoomed=True))
    assert shown is not None
    assert (shown.times, len(shown.suspect)) == (found.times[1:], len(found.times) - 1)
    assert trend_chart.within(found, Frame(first - 10, first - 5, last)) == found
    assert trend_chart.within(found, Frame(first - 10, first - 5, last, zoomed=True)) is None
