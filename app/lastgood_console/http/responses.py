"""Make the responses of the HTTP API: no response is ever taken for another content type than it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse

SAFE: Final = {"X-Content-Type-Options": "nosniff"}


def as_json(content: Any, status: int = 200) -> JSONResponse:
    """Return content as JSON."""
    more = {"WWW-Authenticate": 'Bearer realm="lastgood"'} if status == 401 else {}
    return JSONResponse(content, status, headers={**SAFE, **more})


def problem(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer to what cannot be done."""
    answer = as_json({"error": reason}, status)
    answer.headers.update(headers or {})
    return answer
