"""A fake Grafana: a hand-written HTTP server for tests of ``lastgood grafana deploy``. It is not Grafana.

It keeps state, and it is stricter than the real one: a path, method, header or key that the real API documents is
taken, anything else is a 4xx and an entry in ``complaints``. What it does like the real one, because the deployment
depends on it: folders must exist before rules; an id, an organization, a time and a provenance appear in answers; a
query model comes back with defaults; secrets come back blotted out; a dashboard's version is checked; a policy may
only name contact points that exist; what was provisioned by a file cannot be changed.
Sources: Grafana's HTTP API pages and pkg/services/ngalert/api/api_provisioning.go with its definitions.
"""

from __future__ import annotations

import copy
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]
TOKEN = "glsa_fake_0123456789"

RULE_KEYS = {
    "uid", "orgID", "folderUID", "ruleGroup", "title", "condition", "data", "noDataState", "execErrState", "for",
    "keep_firing_for", "annotations", "labels", "isPaused", "notification_settings", "record",
    "missingSeriesEvalsToResolve",
}  # fmt: skip
RULE_NEEDS = {"uid", "title", "condition", "data", "noDataState", "execErrState", "for"}
QUERY_KEYS = {"refId", "queryType", "relativeTimeRange", "datasourceUid", "model"}
POINT_KEYS = {"uid", "name", "type", "settings", "disableResolveMessage"}
SECRETS = {"webhook": {"authorization_credentials", "password"}}
WEBHOOK_KEYS = {
    "url", "httpMethod", "maxAlerts", "authorization_scheme", "authorization_credentials", "username", "password",
    "title", "message", "hmacConfig",
}  # fmt: skip
ROUTE_KEYS = {
    "receiver", "group_by", "group_wait", "group_interval", "repeat_interval", "object_matchers", "routes", "continue",
    "mute_time_intervals", "active_time_intervals",
}  # fmt: skip
UID = re.compile(r"[A-Za-z0-9_-]{1,40}")


class Refused(Exception):
    """The answer to a request that is not as it must be."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class FakeGrafana:
    """The state of the fake and what was asked of it. ``fail`` and ``hang`` break a (method, path without /api)."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.token = TOKEN
        self.folders: dict[str, Json] = {}
        self.dashboards: dict[str, Json] = {}
        self.groups: dict[tuple[str, str], Json] = {}
        mail = {"uid": "default", "name": "grafana-default-email", "type": "email", "settings": {"addresses": "a@b.c"}}
        self.contact_points: dict[str, Json] = {"default": mail}
        self.policy: Json = {"receiver": "grafana-default-email", "group_by": ["grafana_folder", "alertname"]}
        self.annotations: list[Json] = []
        self.data_sources: dict[str, Json] = {
            "lastgood-prometheus": {"uid": "lastgood-prometheus", "type": "prometheus"}
        }
        self.requests: list[tuple[str, str]] = []
        self.complaints: list[str] = []
        self.fail: dict[tuple[str, str], tuple[int, bytes, str]] = {}
        self.hang: set[tuple[str, str]] = set()
        self.redirects: dict[str, str] = {}
        self.released = threading.Event()
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.url = ""

    @property
    def writes(self) -> list[tuple[str, str]]:
        """Return what was asked besides reading."""
        return [request for request in self.requests if request[0] != "GET"]

    @property
    def rules(self) -> dict[str, Json]:
        """Return uid -> rule over all groups."""
        return {rule["uid"]: rule for group in self.groups.values() for rule in group["rules"]}

    def break_with(self, method: str, path: str, status: int, message: str = "broken on purpose") -> None:
        """Answer one kind of request with an error."""
        self.fail[method, path] = (status, json.dumps({"message": message}).encode(), "application/json")

    # requests

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], headers: Json, body: bytes
    ) -> tuple[int, Any]:
        """Return status and content of one request."""
        for route, handler in self._routes().items():
            wanted, _, pattern = route.partition(" ")
            found = re.fullmatch(pattern.replace("{}", "([^/]+)"), path)
            if wanted == method and found:
                if path != "/health":
                    self._admit(headers)
                content = self._content(headers, body) if method in ("POST", "PUT", "PATCH") else query
                return handler(*[unquote(part) for part in found.groups()], content, headers)
        raise Refused(404, "Not found")

    def _routes(self) -> dict[str, Callable[..., tuple[int, Any]]]:
        rules = "/v1/provisioning"
        return {
            "GET /health": lambda query, headers: (200, {"database": "ok", "version": "12.4.11"}),
            "GET /datasources/uid/{}": lambda uid, query, headers: self._get(self.data_sources, uid),
            "GET /folders/{}": lambda uid, query, headers: self._get(self.folders, uid),
            "POST /folders": self._post_folder,
            "GET /dashboards/uid/{}": lambda uid, query, headers: self._get(self.dashboards, uid),
            "POST /dashboards/db": self._post_dashboard,
            f"GET {rules}/alert-rules": lambda query, headers: (200, [*self.rules.values()]),
            f"DELETE {rules}/alert-rules/{{}}": self._delete_rule,
            f"GET {rules}/folder/{{}}/rule-groups/{{}}": self._get_group,
            f"PUT {rules}/folder/{{}}/rule-groups/{{}}": self._put_group,
            f"GET {rules}/contact-points": lambda query, headers: (200, [*map(blotted, self.contact_points.values())]),
            f"POST {rules}/contact-points": self._post_point,
            f"PUT {rules}/contact-points/{{}}": self._put_point,
            f"GET {rules}/policies": lambda query, headers: (200, self.policy),
            f"PUT {rules}/policies": self._put_policy,
            "GET /annotations": self._get_annotations,
            "POST /annotations": self._post_annotation,
            "PUT /annotations/{}": self._put_annotation,
        }

    def _admit(self, headers: Json) -> None:
        if headers.get("authorization") != f"Bearer {self.token}":
            raise Refused(401, "Invalid API key")

    def _content(self, headers: Json, body: bytes) -> Any:
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            raise Refused(400, "bad request data")
        return json.loads(body)

    def _get(self, place: dict[str, Json], uid: str) -> tuple[int, Json]:
        if uid not in place:
            raise Refused(404, "not found")
        return 200, place[uid]

    # folders and dashboards

    def _post_folder(self, given: Json, headers: Json) -> tuple[int, Json]:
        keys(given, {"uid", "title"}, {"title", "uid"})
        if given["uid"] in self.folders:
            raise Refused(409, "a folder with that uid already exists")
        self.folders[given["uid"]] = {"id": len(self.folders) + 1, "version": 1, **given}
        return 200, self.folders[given["uid"]]

    def _post_dashboard(self, given: Json, headers: Json) -> tuple[int, Json]:
        keys(given, {"dashboard", "folderUid", "overwrite", "message"}, {"dashboard", "folderUid"})
        board, uid = given["dashboard"], given["dashboard"]["uid"]
        if given["folderUid"] not in self.folders:
            raise Refused(400, "folder not found")
        there = self.dashboards.get(uid)
        if there and there["meta"].get("provisioned"):
            raise Refused(400, "Cannot save provisioned dashboard")
        version = there["dashboard"]["version"] if there else 0
        if not given.get("overwrite") and board.get("version", 0) != version:
            raise Refused(412, "The dashboard has been changed by someone else")
        stored = {
            **board,
            "id": there["dashboard"]["id"] if there else len(self.dashboards) + 1,
            "version": version + 1,
        }
        self.dashboards[uid] = {"dashboard": stored, "meta": {"folderUid": given["folderUid"], "provisioned": False}}
        return 200, {"uid": uid, "id": stored["id"], "version": stored["version"], "status": "success"}

    # rules

    def _get_group(self, folder: str, group: str, query: Json, headers: Json) -> tuple[int, Json]:
        if not self.groups.get((folder, group), {}).get("rules"):
            raise Refused(404, "rule group not found")
        return 200, self.groups[folder, group]

    def _put_group(self, folder: str, group: str, given: Json, headers: Json) -> tuple[int, Json]:
        keys(given, {"title", "folderUid", "interval", "rules"}, {"title", "folderUid", "interval", "rules"})
        if folder not in self.folders:
            raise Refused(400, "folder does not exist")
        if (given["folderUid"], given["title"]) != (folder, group):
            raise Refused(400, "the path and the body name different groups")
        if not isinstance(given["interval"], int) or given["interval"] <= 0 or given["interval"] % 10:
            raise Refused(400, f"interval ({given['interval']}) should be non-zero and divided exactly by 10")
        before = self.rules
        stored = [self._stored_rule(rule, before, folder, group) for rule in given["rules"]]
        owned = [rule for rule in self.groups.get((folder, group), {}).get("rules", []) if rule["provenance"] == "file"]
        if owned:
            raise Refused(409, "cannot change with provided provenance 'api', needs 'file'")
        moved = {rule["uid"] for rule in stored}
        for other in self.groups.values():
            other["rules"] = [rule for rule in other["rules"] if rule["uid"] not in moved]
        self.groups[folder, group] = {**given, "rules": stored}
        return 200, given

    def _stored_rule(self, given: Json, before: dict[str, Json], folder: str, group: str) -> Json:
        keys(given, RULE_KEYS, RULE_NEEDS)
        uid(given["uid"])
        for query in given["data"]:
            keys(query, QUERY_KEYS, {"refId", "datasourceUid", "model", "relativeTimeRange"})
        if given["condition"] not in {query["refId"] for query in given["data"]}:
            raise Refused(400, f"condition {given['condition']} does not exist")
        labels = [*given.get("labels", {}).values(), *given.get("annotations", {}).values()]
        if not all(isinstance(text, str) for text in labels):
            raise Refused(400, "labels and annotations are strings")
        rule = copy.deepcopy(given)
        for query in rule["data"]:
            query["queryType"] = query.get("queryType", "")
            query["model"] = {"intervalMs": 1000, "maxDataPoints": 43200, **query["model"]}
        numbers = {"id": before.get(given["uid"], {}).get("id", len(before) + 1), "orgID": 1}
        defaults = {"keep_firing_for": "0s", "isPaused": False, "notification_settings": None, "record": None}
        rule["for"] = {"60s": "1m", "0m": "0s", "120s": "2m"}.get(rule["for"], rule["for"])
        made = {"updated": f"2026-11-30T00:00:{len(self.requests) % 60:02}Z", "provenance": "api"}
        return {**defaults, **rule, **numbers, "folderUID": folder, "ruleGroup": group, **made}

    def _delete_rule(self, name: str, query: Json, headers: Json) -> tuple[int, Any]:
        if name in self.rules and self.rules[name]["provenance"] == "file":
            raise Refused(409, "cannot delete with provided provenance 'api', needs 'file'")
        for group in self.groups.values():
            group["rules"] = [rule for rule in group["rules"] if rule["uid"] != name]
        return 204, None

    # notifications

    def _post_point(self, given: Json, headers: Json) -> tuple[int, Json]:
        self._check_point(given)
        if given["uid"] in self.contact_points:
            raise Refused(500, f"receiver configuration with UID '{given['uid']}' already exist")
        self.contact_points[given["uid"]] = {**copy.deepcopy(given), "provenance": "api"}
        return 202, blotted(self.contact_points[given["uid"]])

    def _put_point(self, name: str, given: Json, headers: Json) -> tuple[int, Json]:
        self._check_point(given)
        there = self.contact_points.get(name)
        if there is None:
            raise Refused(404, "contact point not found")
        settings = {key: there["settings"].get(key) if value == "[REDACTED]" else value
                    for key, value in given["settings"].items()}  # fmt: skip
        self.contact_points[name] = {**given, "settings": settings, "provenance": "api"}
        return 202, {"message": "contactpoint updated"}

    def _check_point(self, given: Json) -> None:
        keys(given, POINT_KEYS, {"uid", "name", "type", "settings"})
        uid(given["uid"])
        if given["type"] == "webhook":
            keys(given["settings"], WEBHOOK_KEYS, {"url"})

    def _put_policy(self, given: Json, headers: Json) -> tuple[int, Json]:
        self._check_route(given, root=True)
        editable = headers.get("x-disable-provenance") == "true"
        there = self.policy.get("provenance", "")
        if there and (editable or there == "file"):
            raise Refused(409, f"cannot change provenance from '{there}'")
        self.policy = {**given} if editable else {**given, "provenance": "api"}
        return 202, {"message": "policies updated"}

    def _check_route(self, route: Json, root: bool = False) -> None:
        keys(route, ROUTE_KEYS, {"receiver"})
        if root and (route.get("object_matchers") or route.get("continue")):
            raise Refused(400, "the root route must not have any matchers")
        if route["receiver"] not in {point["name"] for point in self.contact_points.values()}:
            raise Refused(400, f"receiver '{route['receiver']}' does not exist")
        for matcher in route.get("object_matchers", []):
            if len(matcher) != 3 or matcher[1] not in ("=", "!=", "=~", "!~"):
                raise Refused(400, "invalid matcher")
        for child in route.get("routes", []):
            self._check_route(child)

    # annotations

    def _get_annotations(self, query: dict[str, list[str]], headers: Json) -> tuple[int, list[Json]]:
        tags, limit = set(query.get("tags", [])), int(query.get("limit", ["100"])[0])
        low, high = (int(query.get(key, ["0"])[0]) for key in ("from", "to"))
        found = [mark for mark in self.annotations if tags <= set(mark["tags"])]
        found = [mark for mark in found if not (low and high) or low <= mark["time"] <= high]
        return 200, sorted(found, key=lambda mark: -mark["time"])[:limit]

    def _post_annotation(self, given: Json, headers: Json) -> tuple[int, Json]:
        self._check_annotation(given)
        number = len(self.annotations) + 1
        kept = {key: value for key, value in given.items() if value is not None}
        self.annotations.append({"id": number, "alertId": 0, "userId": 1, "data": {}, **kept})
        return 200, {"message": "Annotation added", "id": number}

    def _put_annotation(self, number: str, given: Json, headers: Json) -> tuple[int, Json]:
        self._check_annotation(given)
        there = next((mark for mark in self.annotations if mark["id"] == int(number)), None)
        if there is None:
            raise Refused(404, "Could not find annotation to update")
        there.update(given)
        return 200, {"message": "Annotation updated"}

    def _check_annotation(self, given: Json) -> None:
        keys(given, {"panelId", "time", "timeEnd", "tags", "text"}, {"time", "tags", "text"})
        if not isinstance(given["time"], int) or given["time"] < 1_000_000_000_000:
            raise Refused(400, "time is in milliseconds")
        if any(not isinstance(tag, str) or not 0 < len(tag) <= 100 for tag in given["tags"]):
            raise Refused(400, "a tag is a text of at most 100 characters")


def keys(given: Any, allowed: set[str], needed: set[str]) -> None:
    """Refuse an object with a key that the API does not have, or without one that it needs."""
    if not isinstance(given, dict):
        raise Refused(400, "not an object")
    if odd := sorted((set(given) - allowed) | (needed - set(given))):
        raise Refused(400, f"unknown or missing: {', '.join(odd)}")


def uid(text: str) -> None:
    """Refuse what cannot be a uid."""
    if not UID.fullmatch(text):
        raise Refused(400, f"uid {text!r} is not one")


def blotted(point: Json) -> Json:
    """Return a contact point without its secrets."""
    hidden = SECRETS.get(point["type"], set())
    settings = {key: "[REDACTED]" if key in hidden and value else value for key, value in point["settings"].items()}
    if "hmacConfig" in settings:
        settings["hmacConfig"] = {**settings["hmacConfig"], "secret": "[REDACTED]"}
    return {**point, "settings": settings}


@contextmanager
def fake_grafana(prefix: str = "") -> Iterator[FakeGrafana]:
    """Serve a fake on a free port of this machine."""
    fake = FakeGrafana(prefix)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}{prefix}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    fake: FakeGrafana
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for each answer: two of them wait for each other

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        place = f"{self.fake.prefix}/api"
        if not parts.path.startswith(f"{place}/"):
            return self._send(404, b"<html>404 page not found</html>", "text/html")
        path = parts.path.removeprefix(place)
        asked = (self.command, path)
        self.fake.requests.append(asked)
        self.fake.before(*asked)
        if path in self.fake.redirects:
            return self._send(302, b"", "text/html", self.fake.redirects[path])
        if asked in self.fake.hang:
            self.fake.released.wait(10)
            time.sleep(0.01)
        if asked in self.fake.fail:
            return self._send(*self.fake.fail[asked])
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            status, content = self.fake.answer(self.command, path, parse_qs(parts.query), headers, body)
        except Refused as refused:
            if refused.status == 400:
                self.fake.complaints.append(f"{self.command} {path}: {refused.message}")
            status, content = refused.status, {"message": refused.message}
        return self._send(status, b"" if content is None else json.dumps(content).encode(), "application/json")

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _handle

    def _send(self, status: int, body: bytes, content_type: str, location: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""
