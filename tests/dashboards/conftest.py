"""Load Grafana's SDK once: it warns that it prefers a newer format to the classic one, which Grafana 11 to 13 read."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import lastgood_dashboards.frame  # noqa: F401
