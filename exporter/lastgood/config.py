"""Hold the settings of a watched training job: one frozen object, checked when it is made.

Every field is a keyword of :func:`lastgood.watch` and can be overridden by the environment variable
``LASTGOOD_<FIELD>`` (upper case), so an operator can change a cadence without touching the training code. There is no
configuration file.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from lastgood.devices import choice as devices_of
from lastgood.errors import ConfigError
from lastgood.events import CHECKS, is_slug, slug
from lastgood.push_receiver import push_address

Policy = Literal["stop", "skip", "record"]
POLICIES: Final = get_args(Policy)

COMPILE: Final = ("auto", "on", "off")

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of one attempt."""

    run_dir: str = ""
    """Run directory on shared storage, off the node. Default: ``runs/<run>``."""
    run: str = ""
    """Run id, a slug of ``[a-z0-9._-]``. A run directory with a journal keeps its own, and another is refused. Default:
    the run directory's name, else the script's."""
    policy: str | Mapping[str, str] = "stop"
    """What a verdict does: ``stop``, ``skip`` or ``record``; per check as ``{"replay": "record"}`` or, in the
    environment, ``stop,replay=record``."""
    replica_every: int = 50
    """Steps between two replica checks; 0 switches them off (a save still compares)."""
    state_every: int = 200
    """Steps between two replica checks that read the optimizer state as well; 0 leaves that to saves. Off where
    ``replica_every`` is 0."""
    replay_every: int = 200
    """Steps between two replay audits; 0 switches replay off."""
    save_probe: bool = True
    """Replay own and partner's last batch before every save."""
    at_rest_every: int = 100
    """Steps between two at_rest samples of a part of weights and optimizer state; 0 switches the check off."""
    budget: float | None = None
    """Share of step time that checks may take, such as ``0.01``: the cadences stretch, up to 16 times as long, until
    all checks together stay under it, alike on every rank. Saves are not among them, and what runs in every step is
    never switched off."""
    accumulation: int = 1
    """Micro-batches per optimizer step."""
    metrics_port: int = 9470
    """First port tried for this rank's ``/metrics``."""
    metrics_address: str = ""
    """Address that ``/metrics`` listens on. Default: all interfaces."""
    console_url: str = ""
    """Base address of a console or ``lastgood serve`` that is sent findings, verdicts and saves at once."""
    token: str = dataclasses.field(default="", repr=False)
    """Bearer token for ``console_url``, the same as there. A console that has one takes nothing without it, not even
    from its own machine. Never logged, never journaled."""
    push_url: str = ""
    """Remote-write address that this rank pushes its metrics to, such as ``http://prometheus:9090/api/v1/write``, for a
    Prometheus that cannot scrape the ranks. Needs the extra ``push``."""
    push_token: str = dataclasses.field(default="", repr=False)
    """Bearer token for ``push_url``. Never logged, never journaled."""
    push_basic_auth: str = dataclasses.field(default="", repr=False)
    """``user:password`` for ``push_url``. Never logged, never journaled."""
    push_seconds: float = 10.0
    """Seconds between two steps whose metrics are pushed; 0 pushes every step."""
    compile_checks: str = "auto"
    """Whether the pass that reads weights and gradients is compiled: ``auto`` (for GPUs), ``on`` (for the CPU as well,
    which needs a C++ compiler and takes seconds at the start) or ``off``. The results are the same."""
    devices: str = "auto"
    """Whether each rank reads its GPU's sensors: ``auto`` or ``off``. Switch it off where dcgm-exporter runs, whose
    series join on the GPU's UUID. ``fake`` makes the numbers up (of a device called FAKE-GPU), for demos without a GPU;
    ``fake:hot``, ``fake:hot@3`` (after so many seconds) and others let it misbehave."""
    device_seconds: float = 5.0
    """Seconds between two looks at the sensors."""
    node: str = ""
    """Name of this node. Default: ``SLURMD_NODENAME``, ``NODE_NAME``, else the host name."""
    save_timeout_seconds: float = 60.0
    """How long a save or a resume waits for a rank before a warning names it."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _require_kind(field.name, str(field.type), getattr(self, field.name))
        for name in ("replica_every", "state_every", "replay_every", "at_rest_every"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "a number of steps, 0 or more (0 = off)")
        _require(self.accumulation >= 1, "accumulation", self.accumulation, "1 or more micro-batches per step")
        _require(0 <= self.metrics_port <= 65535, "metrics_port", self.metrics_port, "a port from 0 to 65535")
        _require(self.save_timeout_seconds > 0, "save_timeout_seconds", self.save_timeout_seconds, "above 0 seconds")
        _require(self.push_seconds >= 0, "push_seconds", self.push_seconds, "0 or more seconds")
        self._require_push()
        _require(self.compile_checks in COMPILE, "compile_checks", self.compile_checks, f"one of {', '.join(COMPILE)}")
        _require(devices_of.allowed(self.devices), "devices", self.devices, f"auto, off, {devices_of.FAKES}")
        _require(0.1 <= self.device_seconds <= 60, "device_seconds", self.device_seconds, "0.1 to 60 seconds")
        fair = self.budget is None or 0 < self.budget < 1
        _require(fair, "budget", self.budget, "a share of step time above 0 and below 1, such as 0.01, or None")
        _require(
            "://" not in self.run_dir,
            "run_dir",
            self.run_dir,
            "a POSIX path on shared storage; mount the object store, or give a local path and copy it",
        )
        _require(not self.run or is_slug(self.run), "run", self.run, "a slug of a-z, 0-9, '.', '_', '-'")
        parse_policy(self.policy)

    def _require_push(self) -> None:
        """Raise for a push that could not work. The messages show no secret."""
        if self.push_url and push_address(self.push_url).has_login:
            raise ConfigError(
                "push_url holds a login, and addresses are logged: leave it out there, and set push_basic_auth "
                "(LASTGOOD_PUSH_BASIC_AUTH=user:password)"
            )
        if self.push_token and self.push_basic_auth:
            raise ConfigError("push_token and push_basic_auth are both set: a receiver takes one of them")
        if self.push_basic_auth and ":" not in self.push_basic_auth:
            raise ConfigError("push_basic_auth has no colon: expected user:password")
        if not (self.push_token.isascii() and self.push_token.isprintable()):
            raise ConfigError("push_token has characters that no token has, such as the end of a line: take them out")

    def policy_for(self, check: str) -> str:
        """Return what a verdict of ``check`` does."""
        return parse_policy(self.policy)[check]

    def journaled(self) -> dict[str, Any]:
        """Return the settings that go into the journal: everything but what is secret, or may be."""
        out = dataclasses.asdict(self)
        for field in dataclasses.fields(self):
            if not field.repr:
                del out[field.name]
        return out | {"push_url": self.push_url.partition("?")[0]}

    def with_defaults(self) -> Config:
        """Return the settings with run and run directory filled in."""
        named = Path(self.run_dir).absolute().name if self.run_dir else Path(sys.argv[0] or "run").stem
        try:
            run = self.run or slug(named)
        except ValueError as error:
            raise ConfigError(f"{error}; or name it with run=...") from None
        return dataclasses.replace(self, run=run, run_dir=self.run_dir or str(Path("runs") / run))


def load(environ: Mapping[str, str] | None = None, **settings: Any) -> Config:
    """Return the settings given as keywords, overridden by ``LASTGOOD_<FIELD>``, with defaults filled in.

    Raises :class:`ConfigError` for an unknown name or a value outside its rule.
    """
    environ = os.environ if environ is None else environ
    fields = {f.name: f for f in dataclasses.fields(Config)}
    unknown = sorted(set(settings) - set(fields))
    if unknown:
        raise ConfigError(f"unknown setting {unknown[0]!r}: expected one of {', '.join(sorted(fields))}")
    values = {k: os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in settings.items()}
    for name, field in fields.items():
        text = environ.get(f"LASTGOOD_{name.upper()}")
        if text is not None and text != "":
            values[name] = _parse(name, str(field.type), text)
    return Config(**values).with_defaults()


def parse_policy(policy: str | Mapping[str, str]) -> dict[str, str]:
    """Return check -> policy from a word, a mapping, or ``stop,replay=record``."""
    out = dict.fromkeys(CHECKS, "stop")
    if isinstance(policy, Mapping):
        pairs = list(policy.items())
    else:
        pairs = [_policy_pair(part) for part in policy.split(",") if part.strip()]
    for check, value in pairs:
        _require(value in POLICIES, "policy", value, f"one of {', '.join(POLICIES)}")
        _require(check == "*" or check in CHECKS, "policy", check, f"a check of {', '.join(CHECKS)}")
        out |= dict.fromkeys(CHECKS, value) if check == "*" else {check: value}
    return out


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,),
    "str | Mapping[str, str]": (str, Mapping),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
}


def _require_kind(name: str, kind: str, value: object) -> None:
    """Raise for a value of another type; True is no number of steps."""
    ok = isinstance(value, _KINDS[kind]) and (kind == "bool" or not isinstance(value, bool))
    _require(ok, name, value, f"a value of type {kind}")


def _policy_pair(part: str) -> tuple[str, str]:
    check, sep, value = part.strip().partition("=")
    return (check.strip(), value.strip()) if sep else ("*", check)


def _parse(name: str, kind: str, text: str) -> Any:
    variable = f"LASTGOOD_{name.upper()}"
    if kind.startswith("bool"):
        _require(text.lower() in _TRUE | _FALSE, variable, text, "on or off")
        return text.lower() in _TRUE
    convert = {"int": int, "float": float, "float | None": float}.get(kind)
    if convert is None:
        return text
    try:
        return convert(text)
    except ValueError:
        rule = "a whole number" if kind == "int" else "a number"
        raise ConfigError(f"{variable}={text!r}: expected {rule}") from None


def _require(ok: bool, name: str, value: object, rule: str) -> None:
    if not ok:
        raise ConfigError(f"{name}={value!r}: expected {rule}")
