"""How alerts are grouped and repeated on their way to the console, by Alertmanager and by Grafana alike.

Critical alerts do not wait for others of their group. The Watchdog comes so often that its silence is noticed.
"""

from __future__ import annotations

from typing import Final

GROUP_BY: Final = ("alertname", "run", "incident")
GROUP_WAIT_SECONDS: Final = 10
GROUP_INTERVAL: Final = "1m"
REPEAT_INTERVAL: Final = "4h"
CRITICAL_INTERVAL: Final = "10s"
HEARTBEAT_INTERVAL: Final = "5m"
"""How often the Watchdog is sent again: the console says when it stops coming."""
