"""Cases of the rules about findings and suspect checkpoints."""

from __future__ import annotations

from typing import Final

from tests.alerts.promtool_cases import Alert, Case
from tests.alerts.world import INCIDENT, NOT_A_NUMBER, RUN, World, healthy, incident

CLEAN: Final = healthy()
WINDOW: Final = {"start": "50", "end": "100"}

FINDING_RULES: Final = {
    "NonfiniteGradients": "finite",
    "ConservationMismatch": "conservation",
    "ReplicaMismatch": "replica",
    "ReplayMismatch": "replay",
}


def suspect(check: str, value: float = 50, sides: dict[str, str] | None = None, **labels: str) -> Alert:
    known = {
        "run": RUN,
        "incident": INCIDENT,
        "check": check,
        "status": "attributed",
        "scope": "gpu",
        "rank": "3",
        "node": "node-b",
        "gpu_uuid": "GPU-0003",
    }
    return Alert({**known, **labels}, value, sides or WINDOW)


NOBODY: Final = {"rank": "unknown", "node": "unknown", "gpu_uuid": "unknown"}


def _nobody(check: str, status: str, scope: str) -> World:
    return incident(CLEAN, check, status, scope, rank="unknown", node="unknown", uuid="unknown")


def _many(check: str) -> World:
    world = CLEAN
    for rank in range(8):
        world = incident(world, check, rank=str(rank), node=f"node-{rank}", uuid=f"GPU-{rank:04d}")
    return world


def finding_cases(rule: str, check: str) -> list[Case]:
    """Return what every rule about a check must do."""
    other = "replica" if check != "replica" else "replay"
    return [
        Case(rule, "fires for an attributed device", incident(CLEAN, check), (suspect(check),)),
        Case(rule, "is silent in health", CLEAN),
        Case(rule, "is silent about another check", incident(CLEAN, other)),
        Case(
            rule,
            "fires at the boundary, without a checkpoint to resume from",
            incident(CLEAN, check, resume=-1),
            (suspect(check, -1),),
        ),
        Case(
            rule, "fires when step 0 is the step to resume from", incident(CLEAN, check, resume=0), (suspect(check, 0),)
        ),
        Case(rule, "is silent below the boundary", incident(CLEAN, check, resume=-2)),
        Case(rule, "is silent about a value that is not a number", incident(CLEAN, check, resume=NOT_A_NUMBER)),
        Case(
            rule,
            "fires for a job without a suspect",
            _nobody(check, "confirmed", "job"),
            (suspect(check, status="confirmed", scope="job", **NOBODY),),
        ),
        Case(
            rule,
            "names both candidates of an undecided incident",
            incident(incident(CLEAN, check, "undecided"), check, "undecided", rank="0", node="node-a", uuid="GPU-0000"),
            (
                suspect(check, status="undecided"),
                suspect(check, status="undecided", rank="0", node="node-a", gpu_uuid="GPU-0000"),
            ),
        ),
        Case(
            rule,
            "names eight suspects of one incident",
            _many(check),
            tuple(suspect(check, rank=str(n), node=f"node-{n}", gpu_uuid=f"GPU-{n:04d}") for n in range(8)),
        ),
        Case(
            rule,
            "does not know the window",
            incident(CLEAN, check).drop("incident_window_start_step").drop("incident_window_end_step"),
            (suspect(check, sides={"start": "?", "end": "?"}),),
        ),
        Case(
            rule,
            "keeps two incidents and their windows apart",
            incident(incident(CLEAN, check), check, name="i-other", resume=75)
            .ledger("incident_window_start_step", 75, incident="i-other")
            .ledger("incident_window_end_step", 110, incident="i-other"),
            (suspect(check), suspect(check, 75, {"start": "75", "end": "110"}, incident="i-other")),
        ),
        Case(
            rule,
            "keeps two runs apart",
            incident(CLEAN.plus(healthy("other")), check, run="other", resume=75).ledger(
                "incident_window_start_step", 70, run="other", incident=INCIDENT
            ),
            (suspect(check, 75, {"start": "70", "end": "100"}, run="other"),),
        ),
        Case(
            rule,
            "keeps the windows of two runs apart that share an incident's id",
            incident(incident(CLEAN, check).plus(healthy("other")), check, run="other").ledger(
                "incident_window_start_step", 70, run="other", incident=INCIDENT
            ),
            (suspect(check), suspect(check, 50, {"start": "70", "end": "100"}, run="other")),
        ),
        Case(
            rule,
            "is over when the incident is",
            incident(CLEAN, check, resume="50+0x10 stale"),
        ),
        Case(
            rule,
            "writes a name into a link safely",
            incident(CLEAN, check, name="a b&c"),
            (suspect(check, incident="a b&c"),),
        ),
    ]


_SUSPICIOUS: Final = [
    Case(
        "NonfiniteSuspicious",
        "fires for a step that is not yet explained",
        incident(CLEAN, "finite", "suspicious"),
        (suspect("finite", status="suspicious"),),
    ),
    Case("NonfiniteSuspicious", "is silent in health", CLEAN),
    Case("NonfiniteSuspicious", "leaves an attributed device to the other rule", incident(CLEAN, "finite")),
    Case("NonfiniteSuspicious", "is silent about another check", incident(CLEAN, "replay", "suspicious")),
    Case(
        "NonfiniteSuspicious",
        "fires at the boundary, without a checkpoint to resume from",
        incident(CLEAN, "finite", "suspicious", resume=-1),
        (suspect("finite", -1, status="suspicious"),),
    ),
    Case("NonfiniteSuspicious", "is silent below the boundary", incident(CLEAN, "finite", "suspicious", resume=-2)),
    Case(
        "NonfiniteSuspicious",
        "is silent about a value that is not a number",
        incident(CLEAN, "finite", "suspicious", resume=NOT_A_NUMBER),
    ),
    Case(
        "NonfiniteSuspicious",
        "names each suspect of two incidents with its own window",
        incident(
            incident(CLEAN, "finite", "suspicious"), "finite", "suspicious", rank="0", node="node-a", uuid="GPU-0000"
        ).plus(
            World(
                tuple(
                    one
                    for one in incident(World(), "finite", "suspicious", name="i-9", scope="job", resume=75)
                    .ledger("incident_window_start_step", 75, incident="i-9")
                    .series
                    if one.name != "lastgood_incidents"
                )
            )
        ),
        (
            suspect("finite", status="suspicious"),
            suspect("finite", status="suspicious", rank="0", node="node-a", gpu_uuid="GPU-0000"),
            suspect("finite", 75, {"start": "75", "end": "100"}, status="suspicious", scope="job", incident="i-9"),
        ),
    ),
    Case(
        "NonfiniteGradients",
        "leaves a suspicious step to the other rule",
        incident(CLEAN, "finite", "suspicious"),
    ),
]


def node_alert(node: str = "node-b", value: float = 50, sides: dict[str, str] | None = None, **labels: str) -> Alert:
    return Alert({"run": RUN, "incident": INCIDENT, "node": node, **labels}, value, sides or WINDOW)


_TWO_GPUS: Final = incident(
    incident(CLEAN, "replica", scope="node"), "replica", scope="node", rank="2", uuid="GPU-0002"
)
_NODE: Final = [
    Case("NodeNotGpu", "fires once for the node of two accused devices", _TWO_GPUS, (node_alert(),)),
    Case("NodeNotGpu", "is silent in health", CLEAN),
    Case("NodeNotGpu", "is silent about a single GPU", incident(CLEAN, "replica")),
    Case(
        "NodeNotGpu",
        "fires at the boundary, without a checkpoint to resume from",
        incident(CLEAN, "replica", scope="node", resume=-1),
        (node_alert(value=-1),),
    ),
    Case("NodeNotGpu", "is silent below the boundary", incident(CLEAN, "replica", scope="node", resume=-2)),
    Case(
        "NodeNotGpu",
        "is silent about a value that is not a number",
        incident(CLEAN, "replica", scope="node", resume=NOT_A_NUMBER),
    ),
    Case(
        "NodeNotGpu",
        "keeps nodes, incidents and runs apart",
        incident(
            incident(
                incident(_TWO_GPUS, "replica", scope="node", node="node-c").plus(healthy("other")),
                "replica",
                scope="node",
                run="other",
                resume=25,
            ),
            "replay",
            scope="node",
            name="i-9",
            resume=75,
        ).ledger("incident_window_end_step", 120, incident="i-9"),
        (
            node_alert(),
            node_alert("node-c"),
            node_alert(value=25, run="other"),
            node_alert(value=75, incident="i-9", sides={"start": "50", "end": "120"}),
        ),
    ),
]


def _accused(world: World, count: float | str, node: str = "node-b", uuid: str = "GPU-0003", days: str = "7d") -> World:
    place = {"job": "lastgood-ledger", "instance": "console:8490", "node": node, "gpu_uuid": uuid, "window": days}
    return world.add("lastgood_node_accusations", count, **place)


def accused(count: float, node: str = "node-b", uuid: str = "GPU-0003") -> Alert:
    return Alert({"node": node, "gpu_uuid": uuid}, count)


_REPEATEDLY: Final = [
    Case("NodeAccusedRepeatedly", "fires at the boundary, for two incidents", _accused(CLEAN, 2), (accused(2),)),
    Case("NodeAccusedRepeatedly", "fires for more", _accused(CLEAN, 5), (accused(5),)),
    Case("NodeAccusedRepeatedly", "is silent in health", CLEAN),
    Case("NodeAccusedRepeatedly", "is silent about one incident", _accused(CLEAN, 1)),
    Case("NodeAccusedRepeatedly", "looks at seven days, not at ninety", _accused(CLEAN, 5, days="90d")),
    Case("NodeAccusedRepeatedly", "is silent about a value that is not a number", _accused(CLEAN, NOT_A_NUMBER)),
    Case(
        "NodeAccusedRepeatedly",
        "keeps devices apart: two that were accused once each are not one that was accused twice",
        _accused(_accused(_accused(CLEAN, 1), 1, uuid="GPU-0002"), 3, node="node-c"),
        (accused(3, node="node-c"),),
    ),
    Case(
        "NodeAccusedRepeatedly",
        "names two devices of one node",
        _accused(_accused(CLEAN, 2), 3, uuid="GPU-0002"),
        (accused(2), accused(3, uuid="GPU-0002")),
    ),
]


def covered(value: float = 1, trust: str = "suspect", run: str = RUN, sides: dict[str, str] | None = None) -> Alert:
    return Alert({"run": run, "trust": trust}, value, {"incident": INCIDENT, **(sides or {})})


_COVERED: Final = incident(CLEAN, "replay").ledger("checkpoints", 1, trust="suspect")
_SUSPECT: Final = [
    Case("CheckpointSuspect", "fires for a suspect checkpoint of an open incident", _COVERED, (covered(),)),
    Case("CheckpointSuspect", "is silent in health", CLEAN),
    Case(
        "CheckpointSuspect",
        "is silent at the boundary, without a suspect checkpoint",
        incident(CLEAN, "replay"),
    ),
    Case("CheckpointSuspect", "is silent once no incident is open", CLEAN.ledger("checkpoints", 1, trust="suspect")),
    Case(
        "CheckpointSuspect",
        "is silent once the incident has recovered",
        CLEAN.ledger("checkpoints", 1, trust="suspect").ledger("incidents", 1, status="recovered"),
    ),
    Case(
        "CheckpointSuspect",
        "fires when the incident was reopened",
        incident(CLEAN, "replay")
        .ledger("incidents", 0, status="open")
        .ledger("incidents", 1, status="reopened")
        .ledger("checkpoints", 3, trust="tainted"),
        (covered(3, "tainted"),),
    ),
    Case(
        "CheckpointSuspect",
        "names the newest of two open incidents",
        incident(incident(_COVERED, "replica", name="i-older", found=-90), "finite", name="i-newer", found=60),
        (covered(sides={"incident": "i-newer"}),),
    ),
    Case(
        "CheckpointSuspect",
        "keeps suspect and tainted apart, and says that there is no good one",
        _COVERED.ledger("checkpoints", 2, trust="tainted").ledger("last_good_step", -1),
        (
            covered(sides={"last_good": "There is no good checkpoint to resume from yet."}),
            covered(2, "tainted", sides={"last_good": "There is no good checkpoint to resume from yet."}),
        ),
    ),
    Case(
        "CheckpointSuspect",
        "does not mind trusted and unverified checkpoints",
        incident(CLEAN, "replay")
        .ledger("checkpoints", 5, trust="trusted")
        .ledger("checkpoints", 5, trust="unverified"),
    ),
    Case(
        "CheckpointSuspect",
        "is silent about a value that is not a number",
        _COVERED.ledger("checkpoints", NOT_A_NUMBER, trust="suspect"),
    ),
    Case(
        "CheckpointSuspect",
        "does not lend one run's incident to another run's checkpoints",
        incident(CLEAN.plus(healthy("other").ledger("checkpoints", 1, run="other", trust="suspect")), "replay"),
    ),
    Case(
        "CheckpointSuspect",
        "keeps the last good and the incident of two runs apart",
        _COVERED.plus(
            incident(healthy("other"), "replay", run="other", name="i-other", found=90)
            .ledger("checkpoints", 1, run="other", trust="suspect")
            .ledger("last_good_step", 75, run="other")
        ),
        (
            covered(),
            covered(
                run="other",
                sides={"incident": "i-other", "last_good": "Last good checkpoint to resume from: step 75."},
            ),
        ),
    ),
]

CASES: Final = [
    *(case for rule, check in FINDING_RULES.items() for case in finding_cases(rule, check)),
    *_SUSPICIOUS,
    *_NODE,
    *_REPEATEDLY,
    *_SUSPECT,
]
