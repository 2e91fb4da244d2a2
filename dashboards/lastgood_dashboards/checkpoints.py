"""Show the checkpoints of one run beside its incidents: what may be used, what is at risk."""

from __future__ import annotations

from typing import Final

from lastgood_dashboards.incidents import NO_INCIDENT, open_incidents
from lastgood_dashboards.links import UIDS
from lastgood_dashboards.queries import NO_RUN, latest, ledger, run_variable
from lastgood_dashboards.spec import (
    BAD,
    GOOD,
    LATE,
    NONE_AT_MINUS_ONE,
    PEER,
    PLAIN,
    Board,
    Link,
    Panel,
    Query,
    Row,
)  # fmt: skip
from lastgood_dashboards.trust import by_trust, resume_step

RUN: Final = 'run="$run"'
NO_SAVE: Final = "Nothing saved yet"
NO_TRUSTED: Final = "No trusted checkpoint"

NOW: Final = Row(
    id=100, title="Now",
    panels=(
        resume_step(1, RUN),
        Panel(
            id=2, kind="stat", title="Newest checkpoint", width=5, height=4, empty=NO_RUN, texts=NONE_AT_MINUS_ONE,
            says="Step of the newest checkpoint, whatever its trust.",
            queries=(Query(expr=ledger("checkpoint_last_step", RUN), legend="newest"),),
        ),
        Panel(
            id=3, kind="stat", title="Newest trusted checkpoint", width=5, height=4, empty=NO_RUN,
            texts=NONE_AT_MINUS_ONE,
            says="Step of the newest checkpoint that was audited on both sides and that no open window covers.",
            queries=(Query(expr=ledger("checkpoint_last_trusted_step", RUN), legend="trusted"),),
        ),
        Panel(
            id=4, kind="stat", title="Steps at risk", width=5, height=4, empty=NO_TRUSTED,
            says="Steps since the newest trusted checkpoint: what is lost when something is found now.",
            queries=(
                Query(expr=f"{ledger('run_step', RUN)} - ({ledger('checkpoint_last_trusted_step', RUN)} >= 0)",
                      legend="at risk"),
            ),
        ),
        Panel(
            id=5, kind="stat", title="Saves failed in a row", width=4, height=4, empty=NO_RUN,
            says="Saves that failed since the last one that succeeded. A save that a check refused is not counted: "
                 "refusing it was right.",
            queries=(Query(expr=ledger("checkpoint_failed_saves", RUN), legend="failed"),),
            steps=((None, PLAIN), (1, BAD)),
        ),
    ),
)  # fmt: skip

TRUST: Final = Row(
    id=110, title="Trust",
    panels=(
        Panel(
            id=6, kind="lines", title="Steps", width=12, empty=NO_RUN,
            says="Where the run is, and the newest, the newest trusted and the last good checkpoint. Last good falling "
                 "below the newest trusted one is the mark of an open window; -1 is none.",
            queries=(
                Query(expr=ledger("run_step", RUN), legend="run", colour=PEER),
                Query(expr=ledger("checkpoint_last_step", RUN), legend="newest checkpoint", colour=PLAIN),
                Query(expr=ledger("checkpoint_last_trusted_step", RUN), legend="newest trusted", colour=GOOD),
                Query(expr=ledger("last_good_step", RUN), legend="last good", colour="dark-blue"),
            ),
        ),
        Panel(
            id=7, kind="lines", title="Checkpoints by trust", width=12, empty=NO_RUN, low=0,
            says="A checkpoint becomes suspect when the window of an open incident covers it, tainted when its own "
                 "bytes or its save checks are wrong.",
            queries=by_trust(RUN),
        ),
    ),
)  # fmt: skip


def _age(name: str) -> str:
    return f"time() - {ledger(name, RUN)}"


def _per(name: str, count: str) -> str:
    return f"{ledger(name, RUN)} / ({ledger(count, RUN)} > 0)"


SAVES: Final = Row(
    id=120, title="Saves",
    panels=(
        Panel(
            id=8, kind="lines", title="Age", width=8, empty=NO_SAVE, unit="s", low=0,
            says="Time since the newest and the newest trusted checkpoint were saved, and the usual time between two.",
            queries=(
                Query(expr=_age("checkpoint_last_timestamp_seconds"), legend="newest", colour=PLAIN),
                Query(expr=_age("checkpoint_last_trusted_timestamp_seconds"), legend="newest trusted", colour=GOOD),
                Query(expr=ledger("checkpoint_interval_seconds", RUN), legend="usual interval", colour=PEER),
            ),
        ),
        Panel(
            id=9, kind="lines", title="Time of a save", width=8, empty=NO_SAVE, unit="s", low=0,
            says="Mean over all saves so far: how long a save takes, and for how long the training waits for it.",
            queries=(
                Query(expr=_per("checkpoint_save_seconds_sum", "checkpoint_save_seconds_count"), legend="save",
                      colour=PLAIN),
                Query(expr=_per("checkpoint_blocked_seconds_total", "checkpoint_saves_total"), legend="training waits",
                      colour=LATE),
            ),
        ),
        Panel(
            id=10, kind="lines", title="Saves so far", width=8, empty=NO_RUN, low=0,
            says="Checkpoints saved, and saves that failed. A save that a check refused is neither.",
            queries=(
                Query(expr=ledger("checkpoint_saves_total", RUN), legend="saved", colour=GOOD),
                Query(expr=ledger("checkpoint_failures_total", RUN), legend="failed", colour=BAD),
            ),
        ),
    ),
)  # fmt: skip

_WINDOWS: Final = latest("incident_start_timestamp_seconds", RUN, by="run, incident")


def _window(name: str) -> str:
    return f"{ledger(name, RUN, by='run, incident')} and topk(2, {_WINDOWS})"


INCIDENTS: Final = Row(
    id=130, title="Incidents",
    panels=(
        open_incidents(11, RUN, one_run=True),
        Panel(
            id=12, kind="lines", title="Windows of open incidents", width=12, empty=NO_INCIDENT,
            says="The steps in which the corruption can have begun, of the two newest incidents of the time range: "
                 "after the lower line, up to the upper one. A checkpoint after the lower line is not to be used.",
            queries=(
                Query(expr=_window("incident_window_end_step"), legend="{{incident}}: wrong by step", colour=BAD),
                Query(expr=_window("incident_window_start_step"), legend="{{incident}}: clean until step", colour=LATE),
                Query(expr=ledger("run_step", RUN), legend="run", colour=PEER),
            ),
        ),
        Panel(
            id=13, kind="lines", title="Incidents by state", width=6, empty=NO_RUN, low=0,
            says="Recovered: a later attempt resumed at or before the resume step, and every device in it has passed "
                 "the check that failed.",
            queries=(Query(expr=ledger("incidents", RUN, by="run, status"), legend="{{status}}"),),
        ),
        Panel(
            id=14, kind="lines", title="Steps trained again", width=6, empty=NO_RUN, low=0,
            says="Steps that were lost because the run resumed before them.",
            queries=(Query(expr=ledger("lost_steps_total", RUN), legend="lost steps", colour=LATE),),
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    name="checkpoints", uid=UIDS["checkpoints"], title="lastgood: checkpoints and incidents", since="now-24h", runs=RUN,
    says="The checkpoints of one run: which one to resume from, which ones not to use, the windows of its incidents.",
    variables=(run_variable(many=False),),
    rows=(NOW, TRUST, SAVES, INCIDENTS),
    console=Link("Checkpoints in the console", "${console}/checkpoints?run=${run}"),
)  # fmt: skip
