"""Rules about findings: they evaluate the ledger's incidents, whose value is the step to resume from.

A counter of a rank would miss them: the rank that finds a lie exits before it is scraped. An incident has at most 8
suspects, so it makes at most 8 alerts per rule, whatever thousands of ranks say.

A check that is new gets one more ``_finding_rule`` in ``BY_CHECK``.
"""

from __future__ import annotations

from typing import Final

from lastgood_alerts import thresholds as t
from lastgood_alerts.queries import nodes
from lastgood_alerts.rule import Rule, Severity, Side
from lastgood_alerts.sides import LAST_GOOD, window_side

SUSPECT: Final = ("run", "incident", "check", "status", "scope", "rank", "node", "gpu_uuid")
"""What tells two suspects apart: every label of the ledger's series but where it was scraped from."""

_NEVER: Final = "Never: -1 is the value of an incident without a checkpoint to resume from."


def incidents(by: tuple[str, ...], matchers: str) -> str:
    """Return the open incidents that match, by the labels ``by``: the value is the step to resume from."""
    return f"max by ({', '.join(by)}) ({nodes(f'lastgood_incident_resume_step{{{matchers}}}')})"


def _finding_rule(
    name: str, check: str, what: str, meaning: str, severity: Severity = "critical", status: str = "", advice: str = ""
) -> Rule:
    matchers = ", ".join(filter(None, (f'check="{check}"', status)))
    description = (
        f"The check {{check}} failed in run {{run}}: {{who}}, status {{status}}, scope {{scope}}. "
        f"The corruption can have begun in the steps ({{start}}, {{end}}]. {advice}{{resume}} Incident {{incident}}."
    )
    return Rule(
        name=name,
        unit="step to resume from (-1: none)",
        severity=severity,
        check=check,
        condition=incidents(SUSPECT, matchers),
        operator=">=",
        threshold=t.NO_CHECKPOINT,
        labels=SUSPECT,
        meaning=meaning,
        summary=f"{what} in run {{run}}: {{who}}, {{status}}. {{resume}}",
        description=description,
        link="incident",
        sides=(window_side("start"), window_side("end")),
        change=_NEVER,
    )


BY_CHECK: Final = (
    _finding_rule(
        "NonfiniteGradients",
        "finite",
        "NaN or infinity",
        "A loss or gradient was not finite, and the data alone did not explain it.",
        status='status!="suspicious"',
    ),
    _finding_rule(
        "NonfiniteSuspicious",
        "finite",
        "NaN or infinity, not yet explained,",
        "A loss or gradient was not finite; the step was skipped and nobody is accused.",
        severity="warning",
        status='status="suspicious"',
        advice="The step was skipped. Data and software can do this too: nobody is accused. ",
    ),
    _finding_rule(
        "ConservationMismatch",
        "conservation",
        "Wrong sum",
        "The sum of the ranks' checksums was not the checksum of the sum: the averaging itself went wrong.",
    ),
    _finding_rule(
        "ReplicaMismatch",
        "replica",
        "Replicas differ",
        "Replicas that must be bitwise equal are not.",
    ),
    _finding_rule(
        "ReplayMismatch",
        "replay",
        "Replay disagrees",
        "Another node computed another gradient from the same batch and the same weights.",
    ),
)

NODE_NOT_GPU: Final = Rule(
    name="NodeNotGpu",
    unit="step to resume from (-1: none)",
    severity="warning",
    condition=incidents(("run", "incident", "node"), 'scope="node"'),
    operator=">=",
    threshold=t.NO_CHECKPOINT,
    labels=("run", "incident", "node"),
    meaning="Several devices of one node are accused and none elsewhere: it is the node, not one GPU.",
    summary="Node {node} as a whole is accused in run {run}. {resume}",
    description=(
        "Several devices of node {node} are accused in run {run} and none elsewhere: suspect what they share (CPU, "
        "host memory, PCIe, power), and drain the node, not one GPU. "
        "The corruption can have begun in the steps ({start}, {end}]. {resume} Incident {incident}."
    ),
    link="node",
    sides=(window_side("start"), window_side("end")),
    change=_NEVER,
)

NODE_ACCUSED_REPEATEDLY: Final = Rule(
    name="NodeAccusedRepeatedly",
    unit="incidents in 7 days that named the device",
    severity="warning",
    condition=f'max by (node, gpu_uuid) ({nodes("""lastgood_node_accusations{window="7d"}""")})',
    operator=">=",
    threshold=t.NODE_ACCUSATIONS,
    labels=("node", "gpu_uuid"),
    meaning="Incidents of the last 7 days, over all runs, named the same device more than once.",
    summary="GPU {gpu_uuid} on node {node} was accused within 7 days in several incidents: {value}.",
    description=(
        "Incidents of the last 7 days that named GPU {gpu_uuid} on node {node}, over all runs: {value}. Bad devices "
        "come back: keep jobs off it until it is tested or replaced. The step to resume from stands in the alert of "
        "each incident."
    ),
    link="node",
    change="`NODE_ACCUSATIONS`: 1 when spare nodes are cheap.",
)

_COVERED: Final = 'lastgood_checkpoints{trust=~"suspect|tainted"}'
_NEWEST_INCIDENT: Final = Side(
    name="incident",
    query=(
        f"group by (run, trust) ({_COVERED}) * on (run) group_left (incident) "
        "topk by (run) (1, max by (run, incident) (lastgood_incident_start_timestamp_seconds))"
    ),
    by=("run", "trust"),
    text="{incident}",
    unknown="not known",
)
"""The open incident that the console shows of a run; of several the newest."""

CHECKPOINT_SUSPECT: Final = Rule(
    name="CheckpointSuspect",
    unit="checkpoints",
    severity="warning",
    condition=(
        f"max by (run, trust) ({_COVERED}) and on (run) "
        '(max by (run) (lastgood_incidents{status=~"open|reopened"}) > 0)'
    ),
    operator=">",
    threshold=t.COVERED_CHECKPOINTS,
    labels=("run", "trust"),
    meaning="An open incident covers checkpoints that must not be resumed from.",
    summary="Checkpoints of run {run} that are {trust}: {value}. {last_good}",
    description=(
        "Checkpoints of run {run} that are {trust}: {value}. An incident is open whose window covers them, or their "
        "own bytes failed a check. Do not resume from them and do not delete the older ones. {last_good} "
        "Newest open incident: {incident}."
    ),
    link="incident",
    sides=(LAST_GOOD, _NEWEST_INCIDENT),
    change="Leave it.",
)

FINDING_RULES: Final = (*BY_CHECK, NODE_NOT_GPU, NODE_ACCUSED_REPEATEDLY, CHECKPOINT_SUSPECT)
