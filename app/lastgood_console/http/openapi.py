"""Describe the HTTP API as an OpenAPI 3.1 document, made of the table of operations.

What a request needs depends on how the console was started, so a served document says what *that* console asks for.
The one in docs/openapi.json is of a console with a token and sign-in: the most that any asks for.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from lastgood import __version__
from lastgood_console.http.operations import JSON, Access, Operation, Parameter, paths
from lastgood_console.http.schemas import components, ref

ABOUT: Final = (
    "Beside the pages of a console of lastgood, on the same port. Every error is `{\"error\": reason}`. Times are "
    "RFC 3339 in UTC. `HEAD` is answered wherever `GET` is. What is added later may be in an answer without notice: "
    "leave alone what you do not know."
)  # fmt: skip
SCHEMES: Final = {
    "token": {"type": "http", "scheme": "bearer", "description": "The console's LASTGOOD_TOKEN."},
    "session": {
        "type": "apiKey", "in": "cookie", "name": "_streamlit_user",
        "description": "The session of a browser that is signed in on the pages.",
    },
}  # fmt: skip

Needed = list[dict[str, list[str]]]
"""What any one of which a request has to show."""


def openapi(base: str = "", *, token: bool = True, sign_in: bool = True) -> dict[str, Any]:
    """Return the document of a console. ``base``: its path prefix; ``token`` and ``sign_in``: whether it has them."""
    needed = _security(token, sign_in)
    return {
        "openapi": "3.1.0",
        "info": {"title": "lastgood console", "version": __version__, "description": ABOUT},
        "servers": [{"url": base or "/"}],
        "paths": {
            path: {method.lower(): _operation(found, needed) for method, found in methods.items()}
            for path, methods in paths().items()
        },
        "components": {"schemas": components(), "securitySchemes": SCHEMES},
    }


def _security(token: bool, sign_in: bool) -> dict[Access, Needed]:
    by_token: Needed = [{"token": []}] if token else []
    by_session: Needed = [{"session": []}]
    return {"open": [], "read": [*by_token, *by_session] if sign_in else [], "write": by_token}


def _operation(operation: Operation, needed: dict[Access, Needed]) -> dict[str, Any]:
    security = needed[operation.access]
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.says,
        "security": security,
        "responses": _responses(operation, bool(security)),
    }
    if operation.parameters:
        found["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body:
        found["requestBody"] = {"required": True, "content": {operation.body_type: {"schema": operation.body}}}
    return found


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.where == "path",
        "description": parameter.says,
        "schema": parameter.schema,
    }


def _responses(operation: Operation, guarded: bool) -> dict[str, Any]:
    found = {
        str(status): {
            "description": answer.says,
            "content": {kind: {"schema": schema} for kind, schema in answer.content.items()},
        }
        for status, answer in operation.answers.items()
    }
    if guarded:
        found.setdefault("401", _error(HTTPStatus.UNAUTHORIZED))
    return found | {"405": _error(HTTPStatus.METHOD_NOT_ALLOWED)}


def _error(status: HTTPStatus) -> dict[str, Any]:
    return {"description": status.phrase, "content": {JSON: {"schema": ref("Error")}}}
