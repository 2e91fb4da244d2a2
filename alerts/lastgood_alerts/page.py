"""Write the page about the alert rules, docs/alerts.md, from the table and the thresholds."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Final

from lastgood_alerts import thresholds
from lastgood_alerts.rule import Rule
from lastgood_alerts.rules import GROUPS, RULES
from lastgood_alerts.thresholds import NAMED_NODES

INTRODUCTION: Final = """\
An alert names the run, says what is known, and **from which step to resume**. Where it is about a rank or a device, it names
rank, node and GPU (without a GPU: `cpu-` and the slot). It links to the incident, node or run in the console, and to its
runbook, which the console serves too.

## Install

`lastgood rules` prints the rules with links to *your* console: `--console-url https://console.example`.

| you have | do |
|---|---|
| Prometheus, Mimir, Thanos, VictoriaMetrics | `lastgood rules --output lastgood.rules.yml`, name the file in `rule_files`, reload |
| the Prometheus operator | `lastgood rules --format kubernetes`, then `kubectl apply`; add the labels your Prometheus selects rules by |
| Grafana, rules in files | `lastgood rules --format grafana --datasource-uid UID` into `provisioning/alerting/` |
| Grafana, rules by its API | `lastgood grafana deploy`, which also removes rules that are gone |
| nothing yet | `lastgood stack`: Prometheus, Alertmanager and the console on this machine |

Load the rules in one place, Prometheus or Grafana, not in both. Grafana needs no recording rules: they are written out in its
queries. From about a thousand ranks on that is too slow, since Grafana asks for every side value at every evaluation: load
`lastgood rules --format recordings` into Prometheus and give Grafana `lastgood rules --format grafana --recorded`. The tests
hold Grafana's file to the Prometheus one with an evaluator of their own: that tests the file, not Grafana's engine. A critical alert should not wait for its group: `group_wait: 0s`. Group by `alertname, run, incident`. All alerts carry
`component="lastgood"` to route them by.

## Severities

`critical`: wake somebody. `warning`: look in working hours. `info`: never notify on its own.

"""  # noqa: E501

NOTES: Final = f"""\
## What to know about them

- **Findings come from the ledger**, never from a counter of a rank: a rank that finds a lie exits before it is scraped. So
  the console, or `lastgood serve`, must be scraped. LedgerStale says when it is not.
- **The value of an alert about a finding is the step to resume from**; -1 means that there is no checkpoint to resume from.
- **Few alerts, whatever 16,384 ranks say.** An incident names at most 8 suspects. Rules about ranks and devices make one
  alert per node with its worst rank, for at most {NAMED_NODES} nodes of a run; more become one alert with `node="several"`. Rules about
  a run make one.
- **Metrics never accuse a GPU.** GradNormOutlier and PowerDeviates say where to look; only a check names a device.
- **Silence.** A run that died without a word stays active in the ledger. RunVanished says so once neither events nor ranks
  arrive, and stops after a day. The other rules about runs are silent about a run that is not alive.
- **A stalled step** goes by the deadline of the process itself, which knows first steps, evaluations and saves.
- **Scrape with `honor_labels: true`.** Without it a target label `node` renames ours to `exported_node`; the rules take it
  back. Other renamed labels (`run`, `rank`) they do not.
- **dcgm-exporter.** Where our device series are off, power and memory errors come from it, joined by the GPU's UUID; huge
  numbers that stand for no reading are not believed. It has no margin to the slowdown threshold, so ThermalMarginLow is
  silent then. Ranks on slices of a GPU (MIG) are not joined.
- **Counters of a rank.** ExporterErrors and UncorrectedEcc count what was added, resets and a first sample above 0
  included. What a process counts after its last scrape is not seen; UncorrectedEcc often kills the process at once.
  They compare with recordings of the counters that are above 0: in the first hour after the rules are loaded, a count that
  is older counts as new.
- **Recordings of ranks and nodes hold what stands out**, a few series of 16,384: no series means nothing found, not
  nothing known.
- **NaN and missing series** keep a rule silent; the page of metrics says which are absent when.
"""  # noqa: E501


def alerts_page(mark: str) -> str:
    """Return docs/alerts.md. ``mark`` is the comment that says that the page is generated."""
    lines = ["# Alerts", "", mark, "", INTRODUCTION.rstrip(), "", "## Rules", "", *_rule_rows(), "", NOTES.rstrip()]
    lines += ["", "## Recordings", "", *_recording_rows(), "", "## Thresholds", "", *_threshold_rows()]
    return "\n".join(lines) + "\n"


def _rule_rows() -> Iterator[str]:
    yield "| rule | severity | means | fires at | change |"
    yield "|---|---|---|---|---|"
    for rule in RULES:
        name = f"[{rule.name}](../alerts/runbooks/{rule.name}.md)"
        yield f"| {name} | {rule.severity} | {_cell(rule.meaning)} | {fires_at(rule)} | {_cell(rule.change)} |"


def fires_at(rule: Rule) -> str:
    """Return the threshold of a rule in words, with how long it must hold."""
    held = f", for {rule.for_seconds} s" if rule.for_seconds else ""
    return f"{rule.operator} {rule.threshold_text} {rule.unit}{held}"


def _recording_rows() -> Iterator[str]:
    yield "| series | says |"
    yield "|---|---|"
    for group in GROUPS:
        yield from (f"| `{recording.name}` | {_cell(recording.meaning)} |" for recording in group.recordings)


def _threshold_rows() -> Iterator[str]:
    yield "In `alerts/lastgood_alerts/thresholds.py`; `make generate` writes every file anew."
    yield ""
    yield "| threshold | value | says |"
    yield "|---|---|---|"
    for name, text in threshold_texts().items():
        yield f"| `{name}` | {getattr(thresholds, name):,} | {_cell(text)} |"


def threshold_texts() -> dict[str, str]:
    """Return threshold -> the string literal beneath it, in the order of the file."""
    body = ast.parse(inspect.getsource(thresholds)).body
    found = {}
    for statement, below in zip(body, body[1:], strict=False):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
