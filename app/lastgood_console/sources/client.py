"""Ask a metrics server by Prometheus's HTTP API: Prometheus, VictoriaMetrics, Thanos, Mimir.

Two questions and their answers are all that is needed, so the standard library does: the Prometheus clients on PyPI
bring pandas and matplotlib along, and none bounds an answer in time and size. What it keeps: one deadline for a whole
answer, one size, no redirect followed and no proxy used, so that a credential goes to the named address alone.
Credentials come from the environment, are in no ``repr`` and in no message.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from lastgood.errors import ConfigError, LastgoodError
from lastgood.http_address import HttpAddress
from lastgood.http_answer import Answer, post
from lastgood_console.doctor.answer import short

SECONDS: Final = 10.0
MOST_BYTES: Final = 32 << 20
VARIABLE: Final = "LASTGOOD_PROMETHEUS"
EXAMPLE: Final = "http://prometheus.example:9090"
_NOT_READY: Final = frozenset((502, 503, 504))

Labels = Mapping[str, str]
Samples = tuple[tuple[float, float], ...]
"""(unix seconds, value); the value may be NaN or infinite."""


class MetricsError(LastgoodError):
    """The metrics server did not answer as it should: the message says what happened and the way out."""


class NoAnswer(MetricsError):
    """Nothing answers at the address, or what answers says that it is not ready yet."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series of an answer."""

    labels: Labels
    samples: Samples


@dataclass(frozen=True, slots=True)
class Result:
    """An answer. ``warning``: what the server says is missing in it; empty when it says nothing."""

    series: tuple[Series, ...] = ()
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What is shown to a metrics server, and which certificates it is believed by."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    authorities: str | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Credentials:
        """Return what ``LASTGOOD_PROMETHEUS_*`` says. Raises :class:`ConfigError`, which shows no secret."""
        user, password, token, tenant, authorities = (
            environ.get(f"{VARIABLE}_{name}", "") for name in ("USER", "PASSWORD", "TOKEN", "TENANT", "CA")
        )
        if token and (user or password):
            raise ConfigError(f"{VARIABLE}_TOKEN and {VARIABLE}_USER are both set: a request has room for one of them")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if user or password:
            if ":" in user:
                raise ConfigError(f"{VARIABLE}_USER holds a colon, which no user name may")
            headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        if tenant:
            headers["X-Scope-OrgID"] = tenant
        if not all(value.isprintable() and value.isascii() for value in headers.values()):
            raise ConfigError(f"{VARIABLE}_TOKEN or _TENANT holds what no HTTP header can: a line end, or no ASCII")
        return cls(headers=headers, authorities=authorities or None)


class PrometheusClient:
    """Ask one server. ``seconds``: for a whole answer, unless a question says otherwise.

    Raises :class:`ConfigError` for what is no address, or one that holds a login.
    """

    def __init__(self, url: str, credentials: Credentials = Credentials(), seconds: float = SECONDS) -> None:  # noqa: B008
        self._address = HttpAddress(url, "--prometheus", EXAMPLE)
        if self._address.has_login or self._address.query:
            raise ConfigError(
                f"--prometheus {self._address.shown} holds a login or a query: give the base address alone, and "
                f"secrets by {VARIABLE}_USER and {VARIABLE}_PASSWORD, or {VARIABLE}_TOKEN"
            )
        self._credentials, self._seconds = credentials, seconds
        self.shown = self._address.shown.rstrip("/")

    def query(self, expression: str, at: float | None = None, seconds: float | None = None) -> Result:
        """Return what an expression is ``at`` a time (unix seconds; now). Raises :class:`MetricsError`."""
        return self._ask("query", {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"}), seconds)

    def query_range(
        self, expression: str, low: float, high: float, step: float, seconds: float | None = None
    ) -> Result:
        """Return what an expression was every ``step`` seconds from ``low`` to ``high``. Raises as :meth:`query`."""
        span = {"start": f"{low:.3f}", "end": f"{high:.3f}", "step": f"{step:.3f}"}
        return self._ask("query_range", {"query": expression, **span}, seconds)

    def _ask(self, what: str, form: Mapping[str, str], seconds: float | None) -> Result:
        within = self._seconds if seconds is None else seconds
        answer = self._post(f"{self._address.path.rstrip('/')}/api/v1/{what}", urlencode(form).encode(), within)
        content = _content(answer)
        if answer.status != 200:
            kind = NoAnswer if answer.status in _NOT_READY else MetricsError
            raise kind(f"{self.shown} {_refusal(answer, content)}")
        if content is None and answer.text.lstrip().startswith("{"):  # no proxy's page: JSON that does not end
            raise MetricsError(f"{self.shown} answered only in part: what came is JSON cut short")
        if not isinstance(content, dict) or content.get("status") != "success":
            raise MetricsError(f"{self.shown} answers, but not as Prometheus does: give the base address of its API")
        try:
            return Result(tuple(_series(content["data"])), _warning(content))
        except (KeyError, TypeError, ValueError):
            raise MetricsError(f"{self.shown} gave half an answer, or one that is none of Prometheus") from None

    def _post(self, path: str, form: bytes, seconds: float) -> Answer:
        headers = {"Content-Type": "application/x-www-form-urlencoded", **self._credentials.headers}
        try:
            with closing(self._address.connection(seconds, self._credentials.authorities)) as connection:
                return post(connection, path, form, headers, seconds=seconds, text_bytes=MOST_BYTES,
                            most_bytes=MOST_BYTES)  # fmt: skip
        except ssl.SSLCertVerificationError as problem:
            said = short(problem.verify_message)
            raise MetricsError(
                f"{self.shown} shows a certificate that is not trusted ({said}): name its authority in {VARIABLE}_CA"
            ) from None
        except (OSError, http.client.HTTPException) as problem:
            said = (problem.strerror if isinstance(problem, OSError) else "") or str(problem) or type(problem).__name__
            raise NoAnswer(f"{self.shown} does not answer: {short(said)}") from None


def _content(answer: Answer) -> Any:
    try:
        return json.loads(answer.text)
    except (ValueError, RecursionError):
        return None


def _refusal(answer: Answer, content: Any) -> str:
    status = answer.status
    if status in (401, 403):
        return f"refuses us (status {status}): set {VARIABLE}_TOKEN, or {VARIABLE}_USER and {VARIABLE}_PASSWORD"
    if 300 <= status < 400:
        return f"sends us elsewhere (status {status}), where no credential goes: give the address itself"
    if isinstance(content, dict) and content.get("error"):
        return f"answers with status {status}: {short(str(content['error']))}"
    if status in (404, 405):
        return f"has no Prometheus API (status {status}): give the base address of its HTTP API"
    return f"answers with status {status}"


def _warning(content: Mapping[str, Any]) -> str:
    said = content.get("warnings")
    if isinstance(said, list) and said:
        return short(str(said[0]))
    return "its answer is partial" if content.get("isPartial") is True else ""


def _series(data: Mapping[str, Any]) -> Sequence[Series]:
    kind = {"vector": "value", "matrix": "values"}[data["resultType"]]
    return [_one(found["metric"], found[kind], kind == "values") for found in data["result"]]


def _one(metric: Mapping[str, Any], found: Sequence[Any], many: bool) -> Series:
    labels = {str(name): str(value) for name, value in metric.items()}
    return Series(labels, tuple(_sample(*pair) for pair in (found if many else [found])))


def _sample(at: Any, value: Any) -> tuple[float, float]:
    when = float(at)
    if not math.isfinite(when):
        raise ValueError("no time")
    return when, float(value)
