"""Talk to a Grafana over its HTTP API, through grafana-client, with one error for everything that can go wrong.

grafana-client is the maintained fork of grafana-api. Two of its habits are kept away from here: it does not put a
slash behind a path prefix, and it forgets the brackets of an IPv6 address. Every failure of the server, the network
or the answer becomes a :class:`GrafanaError` that says what was asked, what came back and what to do. A token is never
part of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import niquests
from grafana_client.api import GrafanaApi
from grafana_client.client import (
    GrafanaClientError,
    GrafanaException,
    GrafanaServerError,
    GrafanaTimeoutError,
    TokenAuth,
)
from niquests.packages import urllib3

from lastgood.errors import LastgoodError
from lastgood_console.deadline import within
from lastgood_console.deploy import shapes
from lastgood_console.deploy.unreachable import why

Json = dict[str, Any]
T = TypeVar("T")

MOST_TEXT: Final = 200
"""Characters of a server's own message that are shown."""
MOST_BYTES: Final = 64 << 20
"""Of one answer; the rules of an organization are the longest."""
PAGE: Final = 5_000
"""Annotations asked for at a time."""

_ADVICE: Final[Mapping[int, str]] = {
    400: "it does not take what was sent; its version may be too old or too new for this lastgood",
    401: "the token is wrong or has expired: make one for a service account of this organization",
    403: "the token may not do that: give its service account the role Admin",
    404: "there is nothing there: the address may lack a path prefix, Grafana may be too old, or it is gone meanwhile",
    409: "something else owns it, or changes it at the same time: look with --dry-run, then run this again",
    412: "somebody changed it meanwhile: look with --dry-run, then run this again",
    429: "it takes no more requests for now: run this again in a minute",
}


class GrafanaError(LastgoodError):
    """Grafana did not do what was asked. ``status`` is the HTTP status; None without an answer."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class _TooLong(Exception):
    """An answer has more bytes than any of Grafana's."""


class Grafana:
    """One organization of one Grafana.

    ``url`` is its address with a path prefix, if it has one; ``secrets`` are never part of a message, like the token.
    """

    def __init__(self, url: str, token: str, timeout_seconds: float, secrets: Iterable[str] = ()) -> None:
        self.url = url.rstrip("/")
        self._hidden = tuple(secret for secret in (token, *secrets) if secret)
        self._timeout_seconds = timeout_seconds
        self._api: Any = _client(self.url, token, timeout_seconds)

    def __enter__(self) -> Grafana:
        return self

    def __exit__(self, *problem: object) -> None:
        self._api.client.s.close()

    # what is there

    def version(self) -> str:
        """Return its version, or "unknown" when it does not tell strangers. Raises when this is no Grafana."""
        answer = self._ask("read its health", lambda: self._api.client.GET("/health"))
        if not isinstance(answer, dict) or "database" not in answer:
            raise GrafanaError(f"{self.url} answers, but not as a Grafana: give the address its start page has")
        return str(answer.get("version") or "unknown")

    def data_source(self, uid: str) -> Json | None:
        """Return a data source."""
        return self._find(
            f"data source {uid}", shapes.DATA_SOURCE, lambda: self._api.datasource.get_datasource_by_uid(_part(uid))
        )

    def folder(self, uid: str) -> Json | None:
        """Return a folder."""
        return self._find(f"folder {uid}", shapes.FOLDER, lambda: self._api.folder.get_folder(_part(uid)))

    def dashboard(self, uid: str) -> Json | None:
        """Return a dashboard with its ``meta``."""
        return self._find(f"dashboard {uid}", shapes.DASHBOARD, lambda: self._api.dashboard.get_dashboard(_part(uid)))

    def rules(self) -> list[Json]:
        """Return the alert rules of the organization."""
        return self._list("the alert rules", shapes.RULES, self._api.alertingprovisioning.get_alertrules_all)

    def rule_group(self, folder: str, group: str) -> Json | None:
        """Return a rule group."""
        ask = self._api.alertingprovisioning.get_rule_group
        return self._find(f"rule group {group}", shapes.RULE_GROUP, lambda: ask(_part(folder), _part(group)))

    def contact_points(self) -> list[Json]:
        """Return the contact points of the organization. Secrets in them are blotted out."""
        return self._list("the contact points", shapes.CONTACT_POINTS, self._api.alertingprovisioning.get_contactpoints)

    def policy(self) -> Json:
        """Return the notification policy tree."""
        ask = self._api.alertingprovisioning.get_notification_policy_tree
        return self._object("read the notification policy", ask, shapes.POLICY)

    def annotations(self, tags: list[str], until_ms: int) -> list[Json]:
        """Return the newest annotations with all these tags up to a time in Unix milliseconds, at most ``PAGE``."""
        given = [quote(tag, safe=":") for tag in tags]
        return self._list(
            "the annotations",
            shapes.ANNOTATIONS,
            lambda: self._api.annotations.find_annotations(
                time_from=1, time_to=until_ms, ann_type="annotation", tags=given, limit=PAGE
            ),
        )

    # what is done

    def create_folder(self, folder: Json) -> None:
        """Make a folder."""
        self._object("create the folder", lambda: self._api.folder.create_folder(folder["title"], folder["uid"]))

    def save_dashboard(self, payload: Json) -> None:
        """Create or replace a dashboard."""
        self._object("save the dashboard", lambda: self._api.dashboard.update_dashboard(payload))

    def put_rule_group(self, group: Json) -> None:
        """Replace the rules of a group by those given."""
        where = (_part(group["folderUid"]), _part(group["title"]))
        ask = self._api.alertingprovisioning.update_rule_group
        self._object("replace the rule group", lambda: ask(*where, group))

    def delete_rule(self, uid: str) -> None:
        """Remove a rule. One that is gone already is no failure."""
        ask = self._api.alertingprovisioning.delete_alertrule
        self._find(f"alert rule {uid}", shapes.ANYTHING, lambda: ask(_part(uid)), "remove")

    def create_contact_point(self, point: Json) -> None:
        """Create a contact point."""
        ask = self._api.alertingprovisioning.create_contactpoint
        self._object("create the contact point", lambda: ask(point))

    def change_contact_point(self, point: Json) -> None:
        """Replace a contact point."""
        ask = self._api.alertingprovisioning.update_contactpoint
        self._object("change the contact point", lambda: ask(_part(point["uid"]), point))

    def put_policy(self, tree: Json, editable: bool) -> None:
        """Replace the notification policy tree. ``editable``: people can go on editing it in Grafana's pages."""
        ask = self._api.alertingprovisioning.set_notification_policy_tree
        self._object("change the notification policy", lambda: ask(tree, disable_provenance=editable))

    def create_annotation(self, annotation: Json) -> None:
        """Create an annotation."""
        self._object("create the annotation", lambda: self._api.annotations.add_annotation(**_arguments(annotation)))

    def change_annotation(self, number: int, annotation: Json) -> None:
        """Replace an annotation."""
        ask = self._api.annotations.update_annotation
        self._object("change the annotation", lambda: ask(number, **_arguments(annotation)))

    # asking

    def _find(self, what: str, shape: shapes.Shape, ask: Callable[[], Any], verb: str = "read") -> Json | None:
        try:
            return self._object(f"{verb} {what}", ask, shape, none_is_fine=verb != "read")
        except GrafanaError as error:
            if error.status == 404:
                return None
            raise

    def _list(self, what: str, shape: shapes.Shape, ask: Callable[[], Any]) -> list[Json]:
        answer: list[Json] = self._checked(f"read {what}", self._ask(f"read {what}", ask), shape)
        return answer

    def _object(
        self, what: str, ask: Callable[[], Any], shape: shapes.Shape = shapes.ANYTHING, none_is_fine: bool = False
    ) -> Json:
        answer = self._ask(what, ask)
        if none_is_fine and answer in (None, ""):
            return {}
        checked: Json = self._checked(what, answer, shape)
        return checked

    def _checked(self, what: str, answer: Any, shape: shapes.Shape) -> Any:
        """Return an answer that is as Grafana's. Whoever reads it need not ask again."""
        if problem := shapes.oddness(answer, shape):
            raise self._odd(what, problem)
        return answer

    def _odd(self, what: str, problem: str) -> GrafanaError:
        return GrafanaError(
            f"cannot {what}: {self.url} did not answer as a Grafana does ({problem}); "
            "a proxy or a login page may stand before it: give the address of Grafana itself"
        )

    def _ask(self, what: str, ask: Callable[[], T]) -> T:
        """Ask, and turn whatever goes wrong into a :class:`GrafanaError`."""
        try:
            return within(self._timeout_seconds, ask)
        except (GrafanaTimeoutError, TimeoutError):
            raise GrafanaError(
                f"cannot {what}: no answer from {self.url} within {self._timeout_seconds:g} s; whether it was done is "
                "not known: look with --dry-run, or give a longer --timeout"
            ) from None
        except (GrafanaClientError, GrafanaServerError) as error:
            raise GrafanaError(f"cannot {what}: {self._answered(error)}", int(error.status_code)) from None
        except niquests.exceptions.TooManyRedirects:
            raise GrafanaError(f"cannot {what}: {self.url} points elsewhere: give the address it leads to") from None
        except niquests.exceptions.JSONDecodeError:
            raise self._odd(what, "it is not JSON") from None
        except (urllib3.exceptions.HTTPError, _TooLong) as error:
            raise self._odd(what, self._plain(error)) from None
        except (GrafanaException, niquests.exceptions.RequestException, OSError) as error:
            raise GrafanaError(f"cannot {what}: {self.url} cannot be reached: {self._plain(why(error))}") from None
        except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists without end
            raise self._odd(what, "it is JSON that nobody reads") from None

    def _answered(self, error: GrafanaException) -> str:
        status = int(error.status_code)
        said = error.response.get("message") if isinstance(error.response, dict) else None
        why = f"{status}: {self._plain(said)}" if said else str(status)
        advice = "Grafana itself failed: its log says why" if status >= 500 else _ADVICE.get(status, "")
        return f"Grafana answered {why}" + (f"; {advice}" if advice else "")

    def _plain(self, said: object) -> str:
        """Return what a server or a library said on one line, short, and without a secret."""
        text = " ".join(str(said).split())
        for secret in self._hidden:
            text = text.replace(secret, "[token]")
        return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


def _client(url: str, token: str, timeout_seconds: float) -> Any:
    """Return grafana-client's API object; it is called typed and is not."""
    make: Any = GrafanaApi
    login: Any = TokenAuth
    parts = urlsplit(url)
    host = parts.hostname or ""
    prefix = parts.path.strip("/")
    api = make(
        login(token),
        host=f"[{host}]" if ":" in host else host,
        port=parts.port,
        url_path_prefix=f"{prefix}/" if prefix else "",
        protocol=parts.scheme,
        timeout=timeout_seconds,
        user_agent="lastgood",
    )
    api.client.s.max_redirects = 0  # a redirected POST would arrive as a GET
    api.client.s.request = _limited(api.client.s.request)
    return api


def _limited(request: Callable[..., Any]) -> Callable[..., Any]:
    """Return a way to ask that reads an answer piece by piece, and no more than ``MOST_BYTES`` of it."""

    def ask(*args: Any, **options: Any) -> Any:
        response, content = request(*args, **{**options, "stream": True}), bytearray()
        try:
            for piece in response.iter_content(1 << 16):
                content += piece
                if len(content) > MOST_BYTES:
                    raise _TooLong(f"it is longer than {MOST_BYTES >> 20} MiB")
        except BaseException:
            response.close()
            raise
        response._content = bytes(content)
        return response

    return ask


def _part(text: str) -> str:
    """Return a piece of a path; the client puts it there as it is."""
    return quote(text, safe="")


def _arguments(annotation: Json) -> Json:
    return {
        "time_from": annotation["time"],
        "time_to": annotation["timeEnd"],
        "tags": annotation["tags"],
        "text": annotation["text"],
    }
