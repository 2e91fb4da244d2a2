"""Sort a metrics server's answer into what one ledger said about each run. Pure.

The same names may come from elsewhere: two ledgers that follow one run, another product, a sample that is NaN, a
target label that renamed ours. What counts is a ledger's word as a whole: of each run the series of one source, the
one that read the journals last, and of these only what the catalogue allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from lastgood.catalogue import BY_NAME, PREFIX, Metric
from lastgood.events import is_slug, utc
from lastgood_console.sources.client import Labels, Series

READ_AT: Final = "ledger_last_read_timestamp_seconds"
NEEDED: Final = (
    READ_AT, "run_active", "run_attempt", "run_world_size", "run_step", "run_start_timestamp_seconds",
    "run_attempt_start_timestamp_seconds", "run_attempt_start_step", "run_last_event_timestamp_seconds",
    "check_due_step", "check_interval_steps", "run_check_last_pass_step", "findings_total", "incidents",
    "incident_info", "incident_suspect_info", "incident_suspects", "incident_findings", "incident_finding_attempt",
    "incident_finding_step", "incident_other_nodes", "incident_onset_attempt", "incident_onset_step",
    "incident_contained", "incident_timestamp_seconds", "incident_recovery_attempt", "incident_last_good_attempt",
    "incident_last_good_step", "incident_lost_steps", "incident_lost_seconds", "incident_lost_device_seconds",
    "checkpoints", "last_good_step", "last_good_attempt", "journal_unreadable_lines_total",
)  # fmt: skip
"""What the state of a run is made of, without the prefix."""
_LATEST: Final = 32_503_680_000.0  # the year 3000
_LARGEST: Final = 2**53

Source = frozenset[tuple[str, str]]
"""The labels that are not ours: job, instance, cluster, replica."""
Values = tuple[str, ...]
"""The values of our labels after ``run``, in the order of the catalogue."""


@dataclass(frozen=True, slots=True)
class LedgerSeries:
    """What one ledger says about one run: name without the prefix -> label values -> value, finite."""

    run: str
    rows: Mapping[str, Mapping[Values, float]] = field(default_factory=dict)

    def all(self, name: str) -> Mapping[Values, float]:
        """Return every series of a name."""
        return self.rows.get(name, {})

    def number(self, name: str, *labels: str) -> float | None:
        """Return a value; None when there is none."""
        return self.all(name).get(labels)

    def whole(self, name: str, *labels: str) -> int | None:
        """Return a value that counts something; None when there is none, or it counts nothing."""
        value = self.number(name, *labels)
        return int(value) if value is not None and value == int(value) and abs(value) < _LARGEST else None

    def time(self, name: str, *labels: str) -> str:
        """Return a moment as RFC 3339; empty when there is none."""
        value = self.number(name, *labels)
        return utc(value) if value is not None and 0 < value < _LATEST else ""

    def about(self, incident: str) -> LedgerSeries:
        """Return what is said about one incident, without its id."""
        rows = {
            name: {values[1:]: value for values, value in found.items() if values[:1] == (incident,)}
            for name, found in self.rows.items()
            if name.startswith("incident_")
        }
        return LedgerSeries(self.run, rows)


def selector(runs: Iterable[str]) -> str:
    """Return the expression that selects what the states of these runs are made of."""
    names = f"{PREFIX}({'|'.join(NEEDED)})"
    wanted = "|".join(sorted(run.replace(".", "[.]") for run in runs))
    return f'{{__name__=~"{names}",run=~"{wanted}"}}'


def by_run(found: Iterable[Series]) -> Mapping[str, LedgerSeries]:
    """Return run -> what the ledger that read it last says; runs without such a ledger are none of ours."""
    told: dict[str, dict[Source, dict[str, dict[Values, float]]]] = {}
    for series in found:
        for name, source, run, values, value in _ours(series):
            told.setdefault(run, {}).setdefault(source, {}).setdefault(name, {})[values] = value
    newest = {run: max(sources.values(), key=_read_at) for run, sources in told.items()}
    return {run: LedgerSeries(run, rows) for run, rows in sorted(newest.items()) if _read_at(rows) > -math.inf}


def _read_at(rows: Mapping[str, Mapping[Values, float]]) -> float:
    at = rows.get(READ_AT, {}).get((), -math.inf)
    return at if 0 < at < _LATEST else -math.inf


def _ours(series: Series) -> Iterator[tuple[str, Source, str, Values, float]]:
    """Yield a series as the catalogue has it: (name, source, run, label values, newest value); nothing if it is not."""
    metric = BY_NAME.get(series.labels.get("__name__", ""))
    value = series.samples[-1][1] if series.samples else math.nan
    if metric is None or metric.level != "run" or metric.labels[:1] != ("run",) or not math.isfinite(value):
        return
    values = {label: series.labels.get(f"exported_{label}") or series.labels.get(label, "") for label in metric.labels}
    if is_slug(values["run"]) and all(_allowed(metric, label, text) for label, text in values.items()):
        run, *rest = values.values()
        yield metric.name.removeprefix(PREFIX), _source(series.labels, metric), run, tuple(rest), value


def _allowed(metric: Metric, label: str, text: str) -> bool:
    return bool(text) and len(text) <= 256 and text in metric.values.get(label, (text,))


def _source(labels: Labels, metric: Metric) -> Source:
    ours = {"__name__", *metric.labels, *(f"exported_{label}" for label in metric.labels)}
    return frozenset(
        (name, text) for name, text in labels.items() if name not in ours and name not in ("node", "exported_node")
    )
