"""Incident: who lied, from where to resume, what not to use; then the timeline, the peers and the evidence."""

from dataclasses import replace
from functools import partial

import streamlit as st

from lastgood.peers import peers
from lastgood.state import CheckStatus, Incident, LastGood, RunState
from lastgood.timeline import injected
from lastgood.wording import age_text, moment, ranks_text, state_phrase, steps_text
from lastgood_console.acting import act_on
from lastgood_console.cache import document, peers_picture, step_clock, story_told, trend_picture
from lastgood_console.characters import escape
from lastgood_console.components import peers_chart, trend_chart
from lastgood_console.components.alert_facts import Alerts
from lastgood_console.components.alerts import section_html
from lastgood_console.components.checkpoint_table import checkpoints_html
from lastgood_console.components.command import command_html
from lastgood_console.components.decision import (
    avoid_panel,
    cost_panel,
    is_open,
    resume_note,
    resume_panel,
    sentence,
    things_to_do,
)
from lastgood_console.components.heads import empty, origin_note, rfc3339, section, unreadable_warning
from lastgood_console.components.meters import meters, meters_html
from lastgood_console.components.panels import (
    advice_html,
    crumb_html,
    panel_html,
    reasons_html,
    verdict_html,
)
from lastgood_console.components.selection import select
from lastgood_console.components.strip import key_html, strip_html
from lastgood_console.components.tables import MOST_ROWS, Column, evidence_html, story_html, table_html
from lastgood_console.components.time_frame import Frame
from lastgood_console.components.triage import ALARM, WARN
from lastgood_console.export.formats import FORMATS, render
from lastgood_console.export.origin import STORY_WORDS, saves_words
from lastgood_console.hearing import heard_strip
from lastgood_console.live import live_head, live_html
from lastgood_console.pause import news
from lastgood_console.run_head import age_of, standing_of
from lastgood_console.shell import (
    OVERVIEW_PAGE,
    asked,
    metrics_warning,
    no_runs_html,
    outside_alerts,
    runs_of,
    show_another,
    theme_name,
)
from lastgood_console.sources.trends import MOST_PEERS, ONE_IN, ranks_of
from lastgood_console.store import Snapshot, current
from lastgood_console.timeline_panel import timeline_panel

DO_WIDTH = 210
MOST_OTHERS = 12


def crumb(incident: Incident, snapshot: Snapshot, seconds: float) -> None:
    """Draw run and incident, the way to other incidents, and how this one stands."""
    left = crumb_html(incident)
    others = [i for s in snapshot.states.values() for i in s.incidents if (i.run, i.id) != (incident.run, incident.id)]
    with st.container(horizontal=True, vertical_alignment="center", key="lg-crumb"):
        st.html(left, width="content")
        if others:
            words = f"{len(others)} more incident{'' if len(others) == 1 else 's'}"
            with st.popover(words, type="tertiary", key=f"others-{incident.run}-{incident.id}"):
                for other in sorted(others, key=lambda i: (is_open(i), i.opened_at), reverse=True)[:MOST_OTHERS]:
                    words = f"{other.run} › {other.id} · {other.status}, {state_phrase(other)}"
                    show_another(words, other.run, other.id)
        live_html(partial(standing_of, incident), snapshot, seconds)


def decision(state: RunState, incident: Incident) -> None:
    """Draw the three panels."""
    resume = resume_panel(state, incident)
    border = resume.trust if resume.trust in {"trusted", "unverified"} else "none"
    with st.container(key="lg-panels"):
        first, second, third = st.columns([2.1, 1.05, 1.05])
        with first, st.container(border=True, height="stretch", key=f"lg-panel-resume-{border}"):
            st.html(panel_html("RESUME FROM", resume))
            if resume.command:
                st.html(command_html(resume.command))
                st.html(f'<div class="lg-caption">{escape(resume_note(incident))}</div>')
        with second, st.container(border=True, height="stretch", key="lg-panel-avoid"):
            st.html(panel_html("DO NOT USE", avoid_panel(state, incident)))
        with third, st.container(border=True, height="stretch", key="lg-panel-cost"):
            st.html(panel_html("COST SO FAR" if incident.cost.rising else "COST", cost_panel(incident)))


def reasons_and_advice(state: RunState, incident: Incident) -> None:
    """Draw WHY, AGAINST, UNKNOWN beside DO and the exports."""
    path = current().ledger.path_of(state.run)
    with st.container(key="lg-decision"):
        left, right = st.columns([1, 1.1])
        with left:
            st.html(reasons_html(incident))
        with right, st.container(key="lg-todo"):
            for number, advice in enumerate(things_to_do(state, incident, path), start=1):
                with st.container(horizontal=True, vertical_alignment="center", key=f"lg-do-{number}"):
                    st.html(advice_html(number, advice), width=DO_WIDTH if advice.command else "stretch")
                    if advice.command:
                        st.html(command_html(advice.command))
            with st.container(horizontal=True, horizontal_alignment="right", key="lg-exports"):
                act_on(incident)
                exports(state, incident)


def exports(state: RunState, incident: Incident) -> None:
    """Offer the incident as files. They are written when asked for, from the document that the page shows too."""
    name = f"{state.run}-{incident.id}"
    with st.popover("Export incident", key=f"exports-{name}"):
        for form, kind in FORMATS.items():
            st.download_button(
                f"Export {kind.holds} ({kind.name})", partial(_export, state, incident, form), f"{name}.{form}",
                kind.content_type.partition(";")[0], key=f"export-{form}", on_click="ignore", width="stretch",
            )  # fmt: skip


def _export(state: RunState, incident: Incident, form: str) -> str:
    return render(document(state, incident), form)


def first_screen(state: RunState, incident: Incident, snapshot: Snapshot, seconds: float) -> None:
    """Draw everything down to the strip."""
    crumb(incident, snapshot, seconds)
    st.html(verdict_html(incident))
    metrics_warning(snapshot, seconds)
    if warning := origin_note(state) + unreadable_warning(state):
        st.html(warning)
    decision(state, incident)
    reasons_and_advice(state, incident)
    strip = heard_strip(state, incident, snapshot, seconds)
    st.html(strip_html(strip) + key_html(strip))


def day_words(incident: Incident) -> str:
    """Say in which zone the clocks are, and the day that the incident became known."""
    return f"UTC, {moment(incident.opened_at):%d %b %Y}"


def story(state: RunState, incident: Incident) -> None:
    """Draw what the timeline shows as a table."""
    told = story_told(state, incident)
    note = f"two clocks: when it happened, when it was known · {day_words(incident)}"
    if len(told) > MOST_ROWS:
        note += f" · the first {MOST_ROWS} of {len(told)}; an export has all"
    st.html(section("What happened, and when we knew", note))
    st.html(story_html(told))
    if incident.origin == "metrics":
        st.html(f'<div class="lg-caption">{escape(STORY_WORDS)}</div>')
    if told_faults := injected(state, incident):
        more = f" {len(told_faults) - 1} more follow." if len(told_faults) > 1 else ""
        st.html(f'<div class="lg-caption">Ground truth, not evidence: {escape(told_faults[0])}.{more}</div>')


def against_peers(state: RunState, incident: Incident, frame: Frame) -> None:
    """Draw each suspect's metric against its peers, as far as the timeline shows its steps."""
    for found in peers(incident):
        note = f"{peers_chart.metric_text(found)}, difference from the median of the peers, by step"
        title = f"{ranks_text([found.rank]).capitalize()} against its peers"
        st.html(section(title, f"{note} · context only: a metric never accuses"))
        shown = peers_chart.within(found, step_clock(state), frame)
        if shown is None:
            st.html(empty(escape(f"The zoom shows none of its steps, {found.steps[0]} to {found.steps[-1]}.")))
            continue
        picture, words = peers_picture(shown, incident, theme_name()), peers_chart.spoken(shown, incident)
        st.vega_lite_chart(
            spec=picture, theme=None, width="stretch", key=f"peers-{found.rank}-{found.metric}", alt=words
        )
        same_numbers("Step", found.rank, peers_chart.numbers(shown), title)


def same_numbers(first: str, rank: int, numbers: list[list[str]], title: str) -> None:
    """Offer the numbers of a picture as a table. ``first``: what its first column is."""
    with st.expander("The same numbers as a table"):
        heads = [Column(head, "num") for head in (first, f"Rank {rank}", "Median", "p10", "p90")]
        st.html(table_html(heads, [("", [escape(cell) for cell in row]) for row in numbers], label=title))


def over_time(state: RunState, incident: Incident, frame: Frame, seconds: float) -> None:
    """Draw how each suspect's metrics went beside its peers', where a metrics server has them, in the shown time."""
    for found in current().trends(state, incident):
        title = f"{trend_chart.name_of(found).capitalize()} of {ranks_text([found.rank])}"
        age = age_text(max(0.0, seconds - found.asked_at))
        peers_words = f"its peers (one in {ONE_IN})" if ranks_of(state) > MOST_PEERS else "its peers"
        st.html(section(title, f"less the median of {peers_words}, by time · read {age} ago · context only"))
        shown = trend_chart.within(found, frame)
        if shown is None:
            st.html(empty("The zoom shows none of its samples."))
            continue
        picture, words = trend_picture(shown, incident, theme_name()), trend_chart.spoken(shown)
        st.vega_lite_chart(
            spec=picture, theme=None, width="stretch", key=f"trend-{found.rank}-{found.metric}", alt=words
        )
        same_numbers("UTC", found.rank, trend_chart.numbers(shown), title)


def checkpoints(state: RunState, resume: LastGood | None = None) -> None:
    """Draw the trust of every checkpoint."""
    saved = sum(state.trust_counts.values())
    st.html(section("Checkpoints", f"newest first · {saved} saved"))
    if state.origin == "metrics":
        st.html(empty(escape(saves_words(state.trust_counts))))
    elif state.checkpoints or state.failed_saves:
        st.html(checkpoints_html(state, resume))
    else:
        st.html(empty(escape(state.last_good.reason)))


def show_incident(state: RunState, incident: Incident, snapshot: Snapshot, seconds: float) -> None:
    """Draw an incident."""
    first_screen(state, incident, snapshot, seconds)
    outside = outside_alerts(snapshot, seconds).of_run(state.run)
    if outside.standing:
        alerts(outside, seconds)
    frame = timeline_panel(state, incident)
    story(state, incident)
    against_peers(state, incident, frame)
    over_time(state, incident, frame, seconds)
    count = len(incident.findings)
    found = f"{count} finding{'' if count == 1 else 's'}"
    if incident.origin == "metrics":
        found = "one row per failed check"
    st.html(section("Evidence", f"{found} · happened and known are two clocks · {day_words(incident)}"))
    st.html(evidence_html(document(state, incident)["evidence"]))
    checkpoints(state, incident.resume)
    if not outside.standing:  # what is over can wait
        alerts(outside, seconds)


def show_run(state: RunState, snapshot: Snapshot, seconds: float) -> None:
    """Draw a run without an incident."""
    steps = state.attempt.last_step if state.attempt else 0
    replay = next((c for c in state.checks if c.check == "replay"), None)
    st.html(f'<div class="lg-caption">{escape(state.run)}</div>')
    clean = f"No finding in {steps_text(steps)}."
    said = replay_words(replay, steps)
    outside = outside_alerts(snapshot, seconds).of_run(state.run)
    trouble = trouble_words(state, snapshot, outside, seconds)
    words, said = (trouble, f"{clean} {said}") if trouble else (clean, said)
    live_head(words, said, snapshot, seconds, right=partial(age_of, state.run))
    metrics_warning(snapshot, seconds)
    if warning := origin_note(state) + unreadable_warning(state):
        st.html(warning)
    st.html(section("Steps since each check passed") + meters_html(meters(state, snapshot.progress.get(state.run))))
    alerts(outside, seconds)
    if state.checkpoints:
        strip = heard_strip(state, None, snapshot, seconds)
        st.html(strip_html(strip) + key_html(strip))
    checkpoints(state)


def alerts(outside: Alerts, seconds: float) -> None:
    """Draw the alerts of a run that no incident tells."""
    note = "of this run, that name no incident · of the last 7 days · times in UTC"
    if drawn := section_html(outside, rfc3339(seconds), note):
        st.html(drawn)


def trouble_words(state: RunState, snapshot: Snapshot, outside: Alerts, seconds: float) -> str:
    """Say what is wrong with a run beside the checks, as the overview does; nothing when nothing is."""
    (row,) = runs_of(replace(snapshot, states={state.run: state}), outside, rfc3339(seconds))
    return sentence(row.words) if row.rank in {ALARM, WARN} else ""


def replay_words(replay: CheckStatus | None, steps: int) -> str:
    """Say what replay has seen so far."""
    if replay is None or not replay.running:
        why = f" ({replay.reason})" if replay and replay.reason != "switched off" else ""
        return f"Replay is off{why}: a wrong gradient would not be seen."
    if replay.last_pass_step < 0:
        return "Replay has not passed yet."
    return f"Replay last passed {steps_text(max(0, steps - replay.last_pass_step))} ago."


def page() -> None:
    """Draw the page, which its head keeps live."""
    snapshot, seconds = news()
    chosen = select(snapshot.states, *asked(snapshot.states), snapshot.gone)
    if chosen.problem:
        live_head("Nothing at this address.", chosen.problem, snapshot, seconds)
        st.page_link(OVERVIEW_PAGE, label="Open overview")
    elif chosen.state is None:
        live_head("No runs.", "", snapshot, seconds)
        st.html(empty(no_runs_html()))
    elif chosen.incident is None:
        show_run(chosen.state, snapshot, seconds)
    else:
        show_incident(chosen.state, chosen.incident, snapshot, seconds)


page()
