"""Hold the page of nodes: a device that was accused before is seen at once, whatever run and rank it had."""

from __future__ import annotations

import json
from dataclasses import replace

import altair as alt
import jsonschema
import pytest
from tests.app import console_states as states
from tests.app.pages import NOW, markup, open_page, shown

from lastgood.state import Device, RunState, Suspect
from lastgood_console.components.devices import consequence, headline, matching, rows
from lastgood_console.components.node_cells import NodeCell, cells
from lastgood_console.components.node_map import fleet_map, node_map
from lastgood_console.export.tokens import ThemeName

ACCUSED = Device("node-b", "cpu-1")


def again(state: RunState, run: str) -> RunState:
    """Return the same story under another run's name."""
    return replace(state, run=run, incidents=tuple(replace(i, run=run, id=f"{i.id}-{run}") for i in state.incidents))


def test_a_device_is_accused_over_all_runs_under_whatever_rank() -> None:
    first = states.gradient()
    second = again(first, "other")
    moved = replace(second.incidents[0], suspects=(Suspect(9, "node-b", "cpu-1", 1, "accused"),))
    found = rows([first, replace(second, incidents=(moved,))], NOW)
    assert found[0].device == ACCUSED
    assert [len(found[0].week), len(found[0].quarter)] == [2, 2]
    assert headline(found) == "node-b has lied 2 times in 90 days. Keep it drained."
    assert consequence(found).startswith("Accused: node-b, slot 1 (no GPU). 8 devices on 4 nodes.")


def test_one_incident_is_said_once_and_an_old_one_no_more() -> None:
    once = rows([states.gradient()], NOW)
    assert headline(once) == "node-b lied once in 90 days."
    (accused,) = (row for row in once if row.quarter)
    other = replace(accused, place=replace(accused.place, node="node-z"))
    assert headline([*once, other]) == "2 nodes lied once each in 90 days."
    later = rows([states.gradient()], NOW + 8 * 86_400)
    assert [len(later[0].week), len(later[0].quarter)] == [0, 1]
    assert headline(rows([states.gradient()], NOW + 91 * 86_400)) == "No device is accused."


def test_a_candidate_is_never_accused() -> None:
    found = rows([states.undecided()], NOW)
    assert headline(found) == "No device is accused; the evidence names candidates."
    assert {row.place.node for row in found if row.undecided} == {"node-a", "node-b"}
    assert not [row for row in found if row.quarter]


def test_a_device_that_was_left_out_is_seen_where_it_ran_last() -> None:
    found = {row.device: row for row in rows([states.gradient()], NOW)}
    first, second = states.gradient().attempts
    assert found[ACCUSED].last_seen == first.last_event_at
    assert found[Device("node-d", "cpu-0")].last_seen == second.last_event_at


def test_ranks_are_shown_of_active_runs_only() -> None:
    running = {row.device: row.seats for row in rows([states.clean(ended=False)], NOW)}
    assert running[Device("node-a", "cpu-1")] == (("quiet", 1),)
    assert not [row for row in rows([states.clean()], NOW) if row.seats]


def test_a_whole_node_name_finds_that_node_and_a_part_every_match() -> None:
    state = states.gradient()
    assert {row.place.node for row in matching(rows([state], NOW), "node-b")} == {"node-b"}
    assert {row.place.node for row in matching(rows([state], NOW), "NODE-")} == {"node-a", "node-b", "node-c", "node-d"}
    assert {row.place.gpu_uuid for row in matching(rows([state], NOW), "cpu-1")} == {"cpu-1"}
    assert matching(rows([state], NOW), "node-9") == []


def test_the_page_shows_the_repeat_offender_with_links_to_its_incidents() -> None:
    first = states.gradient()
    app = open_page(first, again(first, "other"), page="nodes")
    said = shown(app)
    assert said.startswith("node-b has lied 2 times in 90 days. Keep it drained.")
    assert "node-b no GPU, slot 1 accused 2 times 2 2" in said
    assert "lg-dev-repeat" in markup(app)
    assert f"demo › {first.incidents[0].id}" in said
    assert f"other › {first.incidents[0].id}-other" in said


def test_an_address_names_the_node_and_one_that_is_not_there_is_said() -> None:
    said = shown(open_page(states.gradient(), page="nodes", node="node-b"))
    assert "node-b no GPU 0 not accused" in said
    assert "node-c" not in said
    assert "No node and no GPU matches 'node-9'." in shown(open_page(states.gradient(), page="nodes", node="node-9"))


def test_of_a_fleet_the_first_are_listed_and_the_others_are_searched_for() -> None:
    state = states.gradient()
    last = state.attempts[-1]
    places = tuple(replace(last.places[0], rank=n, node=f"fleet-{n:04}", slot=0) for n in range(500))
    fleet = replace(state, attempts=(*state.attempts[:-1], replace(last, places=places, world_size=500)))
    app = open_page(fleet, page="nodes")
    assert "the first 60 shown, search for others" in shown(app)
    assert markup(app).count("<tr") == 1 + 60
    assert "fleet-0499" in shown(open_page(fleet, page="nodes", node="fleet-0499"))


def test_without_runs_it_says_what_to_do() -> None:
    assert "No runs in runs . Start one with lastgood demo" in shown(open_page(page="nodes"))


def test_a_hostile_node_name_does_not_become_markup() -> None:
    bad = '"><img src=x onerror=alert(1)>'
    base = states.gradient()
    incident = replace(base.incidents[0], suspects=(Suspect(3, bad, bad, 1, "accused"),))
    app = open_page(replace(base, incidents=(incident,)), page="nodes", node=bad)
    assert "<img" not in markup(app)


# --- the map ---------------------------------------------------------------------------------------------------------


def cells_of(*found: RunState, silent: tuple[str, ...] = ()) -> dict[str, NodeCell]:
    by_run = {state.run: state for state in found}
    return {cell.node: cell for cell in cells(rows(found, NOW), by_run, silent, NOW)}


def test_a_cell_counts_accusations_findings_and_ranks() -> None:
    found = cells_of(states.gradient(recovered=False))
    bad, spare = found["node-b"], found["node-d"]
    assert (bad.accused, bad.values["accusations"], bad.values["findings"]) == (1, 1, 1)
    assert (spare.accused, spare.values["accusations"], spare.values["findings"], spare.run) == (0, 0, 0, "demo")


def test_zero_missing_stale_and_not_a_number_are_four_things() -> None:
    found = cells_of(states.gradient(recovered=False))
    assert (found["node-a"].overlay("unhealthy"), found["node-a"].words("unhealthy")) == (None, "0")
    assert found["node-b"].overlay("unhealthy") == "missing"  # left out of the second attempt
    assert found["node-b"].words("unhealthy") == "no rank of an active run on this node"
    silent = cells_of(states.gradient(recovered=False), silent=("demo",))["node-a"]
    assert (silent.overlay("unhealthy"), silent.words("unhealthy")) == ("stale", "0, stale: its run is silent")
    odd = replace(found["node-a"], values={**found["node-a"].values, "seen": float("nan")})
    assert (odd.overlay("seen"), odd.words("seen")) == ("nan", "× NaN")


def test_ranks_that_did_not_pass_the_newest_round_are_counted_on_their_node() -> None:
    base = states.clean(ended=False)
    odd = replace(
        base.rounds[-1], check="replay", attempt=1, step=999, exceptions={2: ("failed", ""), 3: ("not_run", "")}
    )
    found = cells_of(replace(base, rounds=(*base.rounds, odd)))
    assert [found[node].values["unhealthy"] for node in ("node-a", "node-b", "node-c")] == [0, 2, 0]
    later = replace(odd, step=1000, exceptions={})
    assert cells_of(replace(base, rounds=(*base.rounds, odd, later)))["node-b"].values["unhealthy"] == 0


def test_the_map_has_one_cell_a_node_and_marks_what_is_picked() -> None:
    made = list(cells_of(states.gradient(recovered=False)).values())
    told = node_map(made, "unhealthy", "light", picked="node-b")["datasets"]["cells"]
    assert [(t["node"], t["overlay"], t["mark"], t["picked"]) for t in told] == [
        ("node-a", "none", "not", False), ("node-b", "missing", "accused", True),
        ("node-c", "none", "not", False), ("node-d", "none", "not", False),
    ]  # fmt: skip
    assert [t["bin"] for t in told] == ["0", "", "0", "0"]


def test_a_fleet_is_64_wide_and_ordered_by_run_on_the_overview() -> None:
    one = cells_of(states.gradient(recovered=False))["node-a"]
    many = [replace(one, node=f"node-{n:04}", run="b" if n % 2 else "a") for n in range(2048)]
    told = node_map(many, "accusations", "dark")["datasets"]["cells"]
    assert (told[64]["x"], told[64]["y"], max(t["y"] for t in told)) == (0, 1, 31)
    assert [t["run"] for t in fleet_map(many, "dark")["datasets"]["cells"]] == ["a"] * 1024 + ["b"] * 1024


def test_a_hostile_node_name_cannot_leave_its_text_in_the_map() -> None:
    one = cells_of(states.gradient())["node-a"]
    spec = node_map([replace(one, node="'] + alert(1) + ['\\")], "seen", "light")
    said = json.dumps(spec["layer"])
    assert "\\\\'] + alert(1) + [\\\\'" in said


def test_the_page_draws_the_map_and_the_history_of_one_node() -> None:
    app = open_page(states.gradient(), page="nodes", node="node-b", measure="findings")
    said = shown(app)
    assert "Map 4 nodes · 1 accused" in said
    assert "colour: findings of 90 days that name a rank on the node" in said
    assert "node-b · history 2 devices · accused by 1 incident of 90 days over 1 run" in said
    assert "29 Nov 02:33 demo r-3f2a91c0 no GPU , slot 1 3 attributed replay (50, 100] accused recovered" in said
    assert 'href="incident?run=demo&amp;incident=r-3f2a91c0"' in markup(app)


def test_a_measure_that_is_none_shows_the_first() -> None:
    assert "incidents of 90 days that accuse" in shown(open_page(states.gradient(), page="nodes", measure="nonsense"))


def test_the_overview_draws_the_fleet_under_the_runs() -> None:
    said = shown(open_page(states.gradient(recovered=False)))
    assert said.index("Runs newest") < said.index("Fleet 4 nodes · 1 accused · 1 without a rank now")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_maps_hold_to_the_schema_of_vega_lite(theme: ThemeName) -> None:
    one = cells_of(states.gradient())["node-a"]
    many = [replace(one, node=f"node-{n:04}") for n in range(100)]
    for spec in (node_map(many, "seen", theme), node_map(many, "accusations", theme), fleet_map(many, theme)):
        alt.LayerChart.from_dict(spec)
    broken = node_map(many, "seen", theme)
    broken["layer"][0]["encoding"]["x"]["type"] = "numbers"
    with pytest.raises(jsonschema.ValidationError):
        alt.LayerChart.from_dict(broken)
