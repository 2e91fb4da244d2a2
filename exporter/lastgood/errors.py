"""Name the mistakes a caller may catch.

::

    LastgoodError
    ├── ConfigError        a setting is wrong; says the value, the rule and the way out
    ├── RunDirError        the run directory cannot be used (it holds another run, is not POSIX, ...)
    ├── JournalError       a journal file cannot be read or claimed
    │   └── SchemaVersionError   written by a newer lastgood; says which version is needed
    └── IntegrityError     a check failed and the policy says stop; carries the verdict

``IntegrityError`` is the only exception that lastgood raises into a running training loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class LastgoodError(Exception):
    """Base of every error that lastgood raises on purpose."""


class ConfigError(LastgoodError, ValueError):
    """A setting is wrong: the message says the value, the rule and the way out."""


class RunDirError(LastgoodError):
    """The run directory cannot be used as asked."""


class JournalError(LastgoodError):
    """A journal file cannot be read or claimed."""


class SchemaVersionError(JournalError):
    """The journal was written by a newer lastgood: the message names the version it needs."""


class IntegrityError(LastgoodError):
    """A check failed and the policy says stop. Every rank of the job raises it with the same text.

    ``verdict`` is the data of the ``lastgood.verdict`` event (see :mod:`lastgood.events`), or an empty mapping when
    the bytes of a checkpoint did not match their stored fingerprint.
    """

    def __init__(self, message: str, verdict: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.verdict: Mapping[str, Any] = verdict or {}
