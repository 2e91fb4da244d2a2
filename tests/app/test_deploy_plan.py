"""What a deployment to Grafana would do, decided without a Grafana."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from tests.app.fixtures import states

from lastgood_console.deploy import compare
from lastgood_console.deploy.marks import MOST_PER_RUN, id_of, marks_of
from lastgood_console.deploy.plan import plan, with_route
from lastgood_console.deploy.things import Change, Found, Plan, Wanted

Json = dict[str, Any]

QUERY: Json = {"refId": "A", "datasourceUid": "p", "relativeTimeRange": {"from": 600, "to": 0}, "model": {"expr": "up"}}
ROUTE: Json = {"receiver": "lastgood", "object_matchers": [["grafana_folder", "=", "lastgood"]], "continue": True}


def rule(name: str, **changes: Any) -> Json:
    return {
        "uid": f"lastgood-{name.lower()}", "title": name, "condition": "A", "data": [QUERY], "for": "60s",
        "noDataState": "OK", "execErrState": "Error", "labels": {"severity": "critical"}, "annotations": {}, **changes,
    }  # fmt: skip


def group(*rules: Json, title: str = "runs") -> Json:
    return {"title": title, "folderUid": "lastgood", "interval": 30, "rules": [*rules]}


def stored(given: Json, title: str = "runs", **changes: Any) -> Json:
    """Return a rule as Grafana gives it back."""
    added = {"id": 7, "orgID": 1, "updated": "2026-11-30T00:00:00Z", "folderUID": "lastgood", "ruleGroup": title}
    query = {**QUERY, "queryType": "", "model": {"expr": "up", "intervalMs": 1000}}
    return {**given, "for": "1m", "data": [query], "keep_firing_for": "0s", "provenance": "api", **added, **changes}


def wanted(**changes: Any) -> Wanted:
    basic: Json = {"folder": {"uid": "lastgood", "title": "lastgood"}, "groups": (group(rule("One"), rule("Two")),)}
    return Wanted(**{**basic, **changes})


def found(*rules: Json, **changes: Any) -> Found:
    basic: Json = {"folder": {"uid": "lastgood"}, "rules": rules, "intervals": {"runs": 30} if rules else {}}
    return Found(**{**basic, **changes})


def the(todo: Plan, what: str) -> Change:
    changes = [change for change in todo.changes if change.what == what]
    assert len(changes) == 1, changes
    return changes[0]


def test_an_empty_grafana_gets_everything() -> None:
    todo = plan(wanted(contact_points=({"uid": "c", "name": "lastgood", "settings": {}},), route=ROUTE), Found())
    assert [(change.kind, change.what) for change in todo.changes] == [
        ("create", "folder"), ("create", "contact point"), ("change", "notification policy"), ("create", "rule group")
    ]  # fmt: skip


def test_what_grafana_adds_to_a_rule_is_no_difference() -> None:
    todo = plan(wanted(), found(stored(rule("One")), stored(rule("Two"))))
    assert not todo.to_do
    assert not todo.conflicts


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"for": "5m"}, 'rule One: for: "5m" -> "60s"'),
        ({"labels": {"severity": "info"}}, 'rule One: labels.severity: "info" -> "critical"'),
        ({"labels": {"severity": "critical", "team": "x"}}, 'rule One: labels.team: "x" -> nothing'),
        ({"isPaused": True}, "rule One: isPaused: true -> nothing"),
        ({"data": [{**QUERY, "model": {"expr": "down"}}]}, 'rule One: data[A].model.expr: "down" -> "up"'),
        ({"notification_settings": {"receiver": "x"}}, 'rule One: notification_settings: {"receiver": "x"} -> nothing'),
    ],
)
def test_a_rule_that_differs_is_changed_and_the_difference_is_said(changes: Json, said: str) -> None:
    change = the(plan(wanted(), found(stored(rule("One"), **changes), stored(rule("Two")))), "rule group")
    assert change.kind == "change"
    assert change.lines == (said,)


def test_rules_that_come_and_go_within_a_group_are_named() -> None:
    change = the(plan(wanted(), found(stored(rule("One")), stored(rule("Old")))), "rule group")
    assert change.lines == ("- rule Old", "+ rule Two")
    assert change.leaving == ("Old",)


def test_a_rule_that_leaves_is_named_however_much_else_changes() -> None:
    many = tuple(rule(f"R{number}") for number in range(30))
    there = found(*(stored(one, isPaused=True) for one in many), stored(rule("Old")))
    assert the(plan(wanted(groups=(group(*many),)), there), "rule group").lines[0] == "- rule Old"


def test_another_interval_is_a_difference() -> None:
    there = found(stored(rule("One")), stored(rule("Two")), intervals={"runs": 60})
    assert the(plan(wanted(), there), "rule group").lines == ("interval: 60 -> 30",)


def test_our_rule_in_a_group_that_is_no_more_is_removed() -> None:
    there = found(stored(rule("One")), stored(rule("Two")), stored(rule("Old"), "gone"))
    assert the(plan(wanted(), there), "rule").payload == {"uid": "lastgood-old"}


@pytest.mark.parametrize(
    "changes", [{"uid": "theirs"}, {"provenance": ""}, {"provenance": "file"}, {"folderUID": "other"}]
)
def test_a_rule_that_we_did_not_put_there_is_never_removed(changes: Json) -> None:
    there = found(stored(rule("One")), stored(rule("Two")), stored(rule("Old"), "gone", **changes))
    assert not plan(wanted(), there).to_do


def test_a_rule_that_changed_its_group_is_moved_not_removed() -> None:
    there = found(stored(rule("One")), stored(rule("Two"), "gone"))
    todo = plan(wanted(), there)
    assert [change.what for change in todo.to_do] == ["rule group"]
    assert the(todo, "rule group").lines == ('rule Two: ruleGroup: "gone" -> "runs"',)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (found(stored(rule("One"), provenance="file", isPaused=True)), "rule One comes from a file"),
        (found(stored(rule("Mine"), uid="mine", provenance="")), "rule Mine in group runs is not from lastgood"),
        (
            found(contact_points=({"uid": "c", "name": "x", "settings": {}, "provenance": "file"},)),
            "contact point n comes from a file",
        ),
        (found(policy={"provenance": "file"}), "the notification policy comes from a file"),
        (found(dashboards={"d": {"dashboard": {}, "meta": {"provisioned": True}}}), "dashboard d comes from a file"),
    ],
)
def test_what_is_not_ours_to_change_is_a_conflict_with_a_way_out(there: Found, said: str) -> None:
    target = wanted(
        contact_points=({"uid": "c", "name": "n", "settings": {}},),
        route=ROUTE,
        dashboards=({"uid": "d", "title": "D"},),
    )
    conflicts = plan(target, there).conflicts
    assert len(conflicts) == 1
    assert conflicts[0].startswith(said)


def board(**changes: Any) -> Json:
    return {
        "uid": "lastgood-run",
        "title": "Run",
        "panels": [{"id": 1, "title": "Steps"}],
        "schemaVersion": 42,
        **changes,
    }


def saved(dashboard: Json, folder: str = "lastgood") -> Json:
    return {"dashboard": {**dashboard, "id": 3, "version": 5}, "meta": {"folderUid": folder, "provisioned": False}}


def test_a_dashboard_as_we_saved_it_is_left_alone() -> None:
    there = found(dashboards={"lastgood-run": saved(board())})
    assert the(plan(wanted(groups=(), dashboards=(board(),)), there), "dashboard").kind == "unchanged"


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (saved(board(title="Mine")), 'title: "Mine" -> "Run"'),
        (saved(board(panels=[*board()["panels"], {"id": 2, "title": "Mine"}])),
         'panels[Mine]: {"id": 2, "title": "Mine"} -> nothing'),
        (saved(board(), "elsewhere"), 'folder: "elsewhere" -> "lastgood"'),
    ],
)  # fmt: skip
def test_an_edited_dashboard_is_replaced_in_the_version_that_was_seen(there: Json, said: str) -> None:
    change = the(plan(wanted(groups=(), dashboards=(board(),)), found(dashboards={"lastgood-run": there})), "dashboard")
    assert change.lines == (said,)
    assert change.payload["dashboard"]["version"] == 5
    assert change.payload["overwrite"] is False


def point(**settings: Any) -> Json:
    return {"uid": "c", "name": "lastgood", "type": "webhook", "settings": {"url": "http://c", **settings}}


HIDDEN = "[REDACTED]"


def test_a_secret_that_grafana_does_not_show_is_taken_as_unchanged_until_it_is_renewed() -> None:
    there = found(contact_points=(point(authorization_credentials=HIDDEN),))
    target = wanted(groups=(), contact_points=(point(authorization_credentials="s3cret"),))
    assert the(plan(target, there), "contact point").kind == "unchanged"
    renewed = the(plan(replace(target, renew_secrets=True), there), "contact point")
    assert renewed.kind == "change"
    assert renewed.payload["settings"]["authorization_credentials"] == "s3cret"


def test_a_secret_that_only_grafana_knows_is_kept_when_the_rest_changes() -> None:
    there = found(contact_points=(point(url="http://old", authorization_credentials=HIDDEN),))
    change = the(plan(wanted(groups=(), contact_points=(point(),)), there), "contact point")
    assert change.payload["settings"] == {"url": "http://c", "authorization_credentials": HIDDEN}


SIGNED: Json = {"secret": HIDDEN, "header": "X-Signature"}


HEADER: Json = {"header": "X-Signature"}


@pytest.mark.parametrize(
    "hidden", [{"hmacConfig": SIGNED}, {"hmacConfig": HEADER}, {"hmacConfig": HEADER, "hmacConfig.secret": HIDDEN}]
)
def test_a_hidden_secret_of_a_signature_is_taken_as_unchanged_wherever_grafana_puts_it(hidden: Json) -> None:
    there = found(contact_points=(point(**hidden),))
    target = wanted(groups=(), contact_points=(point(hmacConfig={"secret": "s3cret", "header": "X-Signature"}),))
    assert the(plan(target, there), "contact point").kind == "unchanged"


def test_a_secret_of_a_signature_that_would_be_lost_is_a_conflict() -> None:
    there = found(contact_points=(point(hmacConfig=SIGNED),))
    target = wanted(groups=(), contact_points=(point(),))
    assert not plan(target, there).conflicts
    moved = replace(target, contact_points=(point(url="http://new"),))
    assert "set LASTGOOD_WEBHOOK_SECRET to the console's" in plan(moved, there).conflicts[0]


def test_a_secret_that_is_not_set_yet_is_a_difference_without_its_text() -> None:
    change = the(
        plan(wanted(groups=(), contact_points=(point(authorization_credentials="s3cret"),)),
             found(contact_points=(point(),))),
        "contact point",
    )  # fmt: skip
    assert change.kind == "change"
    assert "s3cret" not in str(change.lines)


THEIRS: Json = {"receiver": "pager", "object_matchers": [["severity", "=", "critical"]]}
TREE: Json = {"receiver": "mail", "group_by": ["alertname"], "routes": [THEIRS], "provenance": ""}


def test_only_our_route_enters_somebody_s_policy() -> None:
    assert with_route(TREE, ROUTE) == {**TREE, "routes": [ROUTE, THEIRS]}


def test_our_route_keeps_its_place_and_is_there_once() -> None:
    old = {**ROUTE, "group_wait": "1h"}
    assert with_route({**TREE, "routes": [THEIRS, old, old]}, ROUTE) == {**TREE, "routes": [THEIRS, ROUTE]}


def test_a_person_s_route_to_our_contact_point_for_other_alerts_stays() -> None:
    other = {"receiver": "lastgood", "object_matchers": [["team", "=", "x"]]}
    assert other in with_route({**TREE, "routes": [other]}, ROUTE)["routes"]


def test_a_policy_with_our_route_is_left_alone() -> None:
    todo = plan(wanted(groups=(), route=ROUTE), found(policy=with_route(TREE, ROUTE)))
    assert the(todo, "notification policy").kind == "unchanged"


def test_findings_and_saves_of_a_run_become_annotations_with_an_identity() -> None:
    marks = marks_of(states.gradient(), "https://console")
    kinds = [mark["tags"][2] for mark in marks]
    assert kinds.count("finding") == len(states.gradient().findings)
    assert kinds.count("save") == len(states.gradient().checkpoints)
    assert len({id_of(mark) for mark in marks}) == len(marks)
    assert all(len(tag) <= 100 for mark in marks for tag in mark["tags"])
    assert [mark["time"] for mark in marks] == sorted(mark["time"] for mark in marks)


def test_a_finding_s_annotation_leads_to_its_incident() -> None:
    mark = next(m for m in marks_of(states.gradient(), "https://console") if "finding" in m["tags"])
    assert "replay failed at step 100: rank 3 (node-b" in mark["text"]
    assert 'href="https://console/incident?run=' in mark["text"]


def test_a_refused_save_is_told_from_a_failed_one() -> None:
    texts = [mark["text"] for mark in marks_of(states.weight(), "https://console") if "save-failed" in mark["tags"]]
    assert texts
    assert "save refused by a check at step 75" in texts[0]


def test_a_path_cannot_put_markup_into_an_annotation() -> None:
    state = states.gradient()
    bad = replace(state.checkpoints[0], path="<img src=x>")
    marks = marks_of(replace(state, checkpoints=(bad,)), "https://console")
    assert not [mark for mark in marks if "<img" in mark["text"]]


def test_annotations_of_a_long_run_are_the_newest_ones() -> None:
    state = states.gradient()
    many = tuple(replace(state.checkpoints[-1], step=step) for step in range(MOST_PER_RUN + 50))
    assert len(marks_of(replace(state, checkpoints=many), "https://console")) == MOST_PER_RUN


def test_annotations_that_are_there_are_left_alone_and_a_changed_one_is_changed() -> None:
    marks = marks_of(states.gradient(), "https://console")
    there = [{"id": number, "userId": 1, **copy.deepcopy(mark)} for number, mark in enumerate(marks[1:], 1)]
    there[0]["text"] = "another"
    todo = plan(wanted(groups=(), annotations=tuple(marks)), found(annotations=tuple(there)))
    kinds = [change.kind for change in todo.changes if change.what == "annotation"]
    assert (kinds.count("create"), kinds.count("change")) == (1, 1)
    assert next(change.number for change in todo.changes if change.kind == "change") == 1


@pytest.mark.parametrize(("text", "value"), [("1m", 60), ("60s", 60), ("1h30m", 5400), ("0s", 0), ("", 0), ("x", None)])
def test_durations_are_compared_as_durations(text: str, value: float | None) -> None:
    assert compare.seconds(text) == value


def test_a_long_difference_is_cut_and_counted() -> None:
    assert compare.first_lines([str(n) for n in range(30)])[-1] == "and 10 more"
