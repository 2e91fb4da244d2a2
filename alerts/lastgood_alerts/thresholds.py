"""Hold every threshold and window of the rules, each with when to change it.

Changing one here and running ``make generate`` changes Prometheus, Kubernetes, Grafana and the docs alike.
"""

from __future__ import annotations

from typing import Final

FINDINGS_INTERVAL_SECONDS: Final = 10
"""How often the rules about findings are evaluated. Grafana takes no shorter one; Prometheus does."""
INTERVAL_SECONDS: Final = 30
"""How often the other rules are evaluated. Longer if rule evaluation is slow at your size."""

NO_CHECKPOINT: Final = -1
"""The resume step of an incident without a checkpoint to resume from. Part of the metric: never change it."""
NODE_ACCUSATIONS: Final = 2
"""Accusations of one device in 7 days. Lower it to 1 when spare nodes are cheap and idle."""
COVERED_CHECKPOINTS: Final = 0
"""Suspect or tainted checkpoints that are tolerated. Leave it at 0."""

HOURS_AT_RISK: Final = 6
"""Hours of work that may be without a trusted checkpoint. Lower it to what you can afford to train again."""
OVERDUE_INTERVALS: Final = 3
"""Usual distances between two saves without a save. Raise it when saves are irregular by design."""
SHORTEST_SAVE_INTERVAL_SECONDS: Final = 60
"""A shorter save interval counts as this long, so that small trial runs do not alarm. Lower it for trials."""
FAILED_SAVES: Final = 2
"""Saves in a row that failed. 1 when one lost save already costs too much."""
CHECKS_STALE_SECONDS: Final = 300
"""How long a check may be due before it counts as stale. Raise it when a scrape takes minutes to arrive."""

GRAD_NORM_SPREADS: Final = 8
"""Distance from the median over ranks, in robust standard deviations. Raise it when batches differ much in length."""
GRAD_NORM_FLOOR: Final = 0.01
"""The least spread, as a share of the median: ranks that agree exactly have none. Raise it for small batches."""
GRAD_NORM_SECONDS: Final = 60
"""How long a norm stays off before it is said. Raise it when outliers come and go with the data."""

SILENT_RANKS: Final = 0
"""Silent ranks that are tolerated. Raise it to the number of ranks that you do not scrape."""
SILENT_SECONDS: Final = 120
"""How long a rank may be silent. Raise it when scrapes are lost often."""
ATTEMPT_SETTLES_SECONDS: Final = 300
"""How long a new attempt may take until all its ranks are scraped. Raise it for slow service discovery."""
STALLED_SECONDS: Final = 0
"""Seconds past the deadline that the process set itself. The deadline knows first steps, evaluations and saves."""
STALLED_FOR_SECONDS: Final = 30
"""How long the deadline stays missed before it is said. Raise it when one scrape is slower than this."""
ALIVE_SECONDS: Final = 600
"""A run whose newest event is older is silent; one that trains writes every 30 s. Raise it for slow shared storage."""
VANISHED_MINUTES: Final = 10
"""Minutes without an event after which a silent run has vanished. Keep it at least as long as ALIVE_SECONDS."""
FORGOTTEN_MINUTES: Final = 24 * 60
"""Minutes after which a vanished run is no news any more. Raise it if nobody looks on weekends."""
LEDGER_READS_SECONDS: Final = 300
"""A ledger that has not read for longer cannot say that a run is silent. Keep it above LEDGER_STALE_SECONDS."""
RESTARTS_PER_HOUR: Final = 3
"""Restarts within an hour. Raise it at sizes where a failure an hour is normal."""
GOODPUT_PERCENT: Final = 90
"""Percent of the last hour that went into steps that were kept. Raise it towards what your runs reach."""
GOODPUT_RAMP_SECONDS: Final = 3600
"""A younger run is not judged by its goodput. Raise it for runs that take long to start."""
GOODPUT_SECONDS: Final = 600
"""How long goodput stays low before it is said. Raise it when long evaluations are part of the run."""

MARGIN_CELSIUS: Final = 5
"""Degrees left before the GPU slows itself down. Lower it when the fleet runs hot by design."""
MARGIN_SECONDS: Final = 300
"""How long the margin stays low before it is said. Lower it when cooling fails fast."""
POWER_PERCENT: Final = 25
"""Percent from the run's own median, averaged over 5 minutes. Raise it when ranks have unequal work by design."""
POWER_SECONDS: Final = 600
"""How long power stays off before it is said. Raise it for runs with long unequal phases."""
PLAUSIBLE_WATTS: Final = 10_000
"""More is no measurement: dcgm-exporter reports huge numbers for what it cannot read. Raise it for bigger devices."""
ECC_ERRORS: Final = 1
"""Uncorrectable memory errors within the hour. Leave it at 1."""
PLAUSIBLE_ERRORS: Final = 1_000_000_000
"""More is no count: dcgm-exporter reports huge numbers for what it cannot read."""

EXPORTER_ERRORS: Final = 1
"""Failures of one part of lastgood within 15 minutes. Raise it when the console is often out of reach."""
UNREADABLE_LINES: Final = 1
"""Places in the run directory that became unreadable within the hour. Leave it at 1."""
LEDGER_STALE_SECONDS: Final = 120
"""Age of the ledger's last reading. Raise it when reading slow shared storage takes longer."""
LEDGER_STALE_FOR_SECONDS: Final = 120
"""How long the ledger stays stale before it is said. Covers a restart of the console."""
LEDGER_UNKNOWN_SECONDS: Final = 86_400
"""The value of the alert when no ledger has been seen within a day; its text says so."""

NAMED_NODES: Final = 7
"""Nodes of a run that get an alert each; more become one alert with node="several". At most 8 alerts in all."""
KEEP_FIRING_SECONDS: Final = 300
"""How long an alert about nodes stays after its condition ended, so that it does not flicker."""
