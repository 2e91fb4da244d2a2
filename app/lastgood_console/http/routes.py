"""Make the API's application of the table of operations: routes, methods, who may, parameters, errors in JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lastgood_console.http.access import REFUSED, Access
from lastgood_console.http.handlers import Handlers, Served
from lastgood_console.http.operations import Operation, Parameter, default_of, paths
from lastgood_console.http.responses import problem

Handler = Callable[[Request, Mapping[str, Any]], Awaitable[Response]]
LARGE_BYTES: Final = 1024


def application(served: Served) -> Starlette:
    """Return the application that answers everything below /api, /metrics and /healthz."""
    handlers = Handlers(served)
    routes = [
        Route(path, Endpoint({m: (o, getattr(handlers, o.name)) for m, o in found.items()}, served.access))
        for path, found in paths().items()
    ]
    nothing = Route("/{rest:path}", Endpoint({}, served.access))
    said = {HTTPException: _say, Exception: _say_nothing}
    return Starlette(
        routes=[*routes, nothing],
        exception_handlers=said,  # type: ignore[arg-type]
        middleware=[Middleware(GZipMiddleware, minimum_size=LARGE_BYTES)],
    )


class Endpoint:
    """Answer one path, whatever the method: a class, since a function's route would answer some methods itself."""

    def __init__(self, operations: Mapping[str, tuple[Operation, Handler]], access: Access) -> None:
        self._operations, self._access = operations, access
        self._open = bool(operations) and all(found.access == "open" for found, _ in operations.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await (await self._answer(Request(scope, receive)))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        if method in self._operations:
            operation, handler = self._operations[method]
            if operation.access == "read" and not self._access.may_read(request):
                return problem(401, REFUSED)
            return await handler(request, read_query(operation.query, request.query_params))
        if not self._open and not self._access.may_read(request):  # what there is is nobody's business either
            return problem(401, REFUSED)
        if self._operations:
            allowed = ", ".join([*self._operations, *(["HEAD"] if "GET" in self._operations else [])])
            return problem(405, f"{request.method[:20]} is not taken here: use {allowed}", {"Allow": allowed})
        return problem(404, "nothing here: /api/openapi.json says what there is")


def read_query(known: Mapping[str, Parameter], given: QueryParams) -> dict[str, Any]:
    """Return the parameters of a query, with defaults. An operation that has none takes no notice of any.

    Raises ``HTTPException`` 400 for one that is not known, comes twice, or is not within its bounds.
    """
    found = {name: default_of(parameter) for name, parameter in known.items()}
    for name, value in given.multi_items() if known else ():
        if name not in known:
            raise HTTPException(400, f"parameter {name[:40]!r} is not known: {', '.join(known)}")
        if len(given.getlist(name)) > 1:
            raise HTTPException(400, f"parameter {name!r} comes more than once")
        found[name] = _read(known[name], value)
    return found


def _read(parameter: Parameter, value: str) -> Any:
    schema = parameter.schema
    if schema["type"] != "integer":
        return value
    number = int(value) if value.isascii() and value.isdecimal() and len(value) <= 16 else -1
    if not schema["minimum"] <= number <= schema["maximum"]:
        bounds = f"{schema['minimum']} to {schema['maximum']}"
        raise HTTPException(400, f"{parameter.name} {value[:40]!r} is no whole number from {bounds}")
    return number


async def _say(request: Request, refused: HTTPException) -> Response:
    return problem(refused.status_code, refused.detail)


async def _say_nothing(request: Request, fault: Exception) -> Response:
    """Answer a fault of ours; the server logs it."""
    return problem(500, "this went wrong on the console's side: its log says how")
