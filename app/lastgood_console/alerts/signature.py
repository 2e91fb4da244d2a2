"""Check the signature that Grafana's webhook contact point can send instead of a token.

Grafana signs with HMAC-SHA256, in hexadecimal, the time (unix seconds), a colon and the body, when the contact point
names a header for the time. Without the time a request that somebody overheard could be sent again for ever, so it is
required and must be recent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from lastgood.admission import Refusal, same

SIGNATURE_HEADER: Final = "X-Grafana-Alerting-Signature"
TIMESTAMP_HEADER: Final = "X-Grafana-Alerting-Timestamp"
MOST_SECONDS: Final = 300.0
"""A signature is good for so long, before and after: clocks differ."""


def is_signed(headers: Mapping[str, str]) -> bool:
    """Tell whether a request carries a signature. ``headers``: lower-case names."""
    return SIGNATURE_HEADER.lower() in headers


def check_signature(body: bytes, headers: Mapping[str, str], secret: str | None, now: float) -> None:
    """Raise :class:`Refusal` 401 unless the request is signed with ``secret``. ``now``: unix seconds."""
    if not secret:
        raise Refusal(401, "signed, but this console has no secret: set LASTGOOD_WEBHOOK_SECRET here")
    said = headers.get(TIMESTAMP_HEADER.lower(), "")
    if not (said.isascii() and said.isdecimal() and len(said) <= 12):
        raise Refusal(401, f"signed without a time: name {TIMESTAMP_HEADER} as the contact point's timestamp header")
    if not same(headers[SIGNATURE_HEADER.lower()].strip().lower(), sign(body, secret, said)):
        raise Refusal(401, "the signature does not fit: the contact point's secret is not LASTGOOD_WEBHOOK_SECRET")
    if (off := abs(now - int(said))) > MOST_SECONDS:
        raise Refusal(401, f"signed {off:.0f} s from now: a signature is good for {MOST_SECONDS:.0f} s")


def sign(body: bytes, secret: str, timestamp: str) -> str:
    """Return the signature of a body sent at a time (unix seconds, as text)."""
    return hmac.new(secret.encode(), timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
