"""Hold the page of nodes: a device that was accused before is seen at once, whatever run and rank it had."""

from __future__ import annotations

from dataclasses import replace

from tests.app import console_states as states
from tests.app.pages import NOW, markup, open_page, shown

from lastgood.state import Device, RunState, Suspect
from lastgood_console.components.devices import consequence, headline, matching, rows

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
    assert headline(rows([states.gradient()], NOW)) == "node-b lied once in 90 days."
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


def test_without_runs_it_says_what_to_do() -> None:
    assert "No runs in runs . Start one with lastgood demo" in shown(open_page(page="nodes"))


def test_a_hostile_node_name_does_not_become_markup() -> None:
    bad = '"><img src=x onerror=alert(1)>'
    base = states.gradient()
    incident = replace(base.incidents[0], suspects=(Suspect(3, bad, bad, 1, "accused"),))
    app = open_page(replace(base, incidents=(incident,)), page="nodes", node=bad)
    assert "<img" not in markup(app)
