"""An OpenID Connect provider of tests: written by hand, small, on loopback, and no more than tests need.

It speaks what a real one does and checks what a real one checks: discovery, the authorization code flow with PKCE
(S256), registered redirect URIs, the client's secret, codes that are good once, ID tokens signed with RS256, keys as a
JWK set, sign-out (RP-initiated). It asks for no password: its page offers the people it knows, and a refusal. Nothing
here is fit to let anybody into anything.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT = "lastgood"
CLIENT_SECRET = "the client's secret of tests"
COOKIE_SECRET = "0123456789abcdef" * 4
ADA = {"sub": "u-1", "name": "Ada Lovelace", "email": "ada@example.org", "email_verified": True}
GRACE = {"sub": "u-2", "name": "Grace Brewster Murray Hopper", "email": "grace@example.org", "email_verified": True}
LIFETIME_SECONDS = 300

Fields = dict[str, str]


@dataclass(frozen=True)
class Grant:
    """What a code stands for."""

    asked: Mapping[str, str]
    person: Mapping[str, Any]


@dataclass
class Provider:
    """A provider in a thread of its own. ``people``: whom its page offers; ``redirect_uris``: those registered.

    ``seen`` is what it was asked for, in order: paths without queries.
    """

    people: Sequence[Mapping[str, Any]] = (ADA, GRACE)
    redirect_uris: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "tests", "use": "sig", "alg": "RS256"})
        self._codes: dict[str, Grant] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.answer(self, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                provider.answer(self, dict(parse_qsl(body)))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def issuer(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def secrets_toml(self, redirect_uri: str, name: str = "") -> str:
        """Return the file that lets a console use it, under a name or none, and register the redirect URI."""
        self.redirect_uris.add(redirect_uri)
        table = f"[auth.{name}]\n" if name else ""
        return (
            f'[auth]\nredirect_uri = "{redirect_uri}"\ncookie_secret = "{COOKIE_SECRET}"\n{table}'
            f'client_id = "{CLIENT}"\nclient_secret = "{CLIENT_SECRET}"\n'
            f'server_metadata_url = "{self.issuer}/.well-known/openid-configuration"\n'
        )

    def passed(self, name: str = "") -> str:
        """Return what a page gives to whoever presses its button: a signed pass to this provider, by its name."""
        said = {"provider": name or "default", "exp": int(time.time()) + 60}
        return jwt.encode({"alg": "HS256"}, said, OctKey.import_key(COOKIE_SECRET))

    def sign_in(self, console: str, who: str = "u-1", page: str = "/", name: str = "") -> tuple[httpx.Client, str]:
        """Sign in at the console of that address as a browser does, coming from one of its pages.

        Return the client, and where it was led at the end. ``who``: a subject; any other refuses.
        ``name``: of this provider in the console's file.
        """
        client = httpx.Client(headers={"referer": f"{console}{page}", "connection": "close"}, timeout=30)
        there = client.get(f"{console}/auth/login", params={"provider": self.passed(name)})
        back = client.get(f"{there.headers['location'].replace('/authorize?', '/chosen?')}&who={who}")
        return client, client.get(back.headers["location"].replace("https:", "http:")).headers["location"]

    def answer(self, request: BaseHTTPRequestHandler, posted: Fields) -> None:
        """Answer one request."""
        where = urlsplit(request.path)
        self.seen.append(where.path)
        asked = dict(parse_qsl(where.query))
        answers = {
            "/.well-known/openid-configuration": lambda: _say(request, 200, self._metadata()),
            "/jwks": lambda: _say(request, 200, {"keys": [self._key.as_dict(private=False)]}),
            "/authorize": lambda: self._authorize(request, asked),
            "/chosen": lambda: self._chosen(request, asked),
            "/token": lambda: self._token(request, posted),
            "/end": lambda: self._end(request, asked),
        }
        answers.get(where.path, lambda: _say(request, 404, {"error": "not_found"}))()

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "end_session_endpoint": f"{self.issuer}/end",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        }

    def _authorize(self, request: BaseHTTPRequestHandler, asked: Fields) -> None:
        """Show the people one can be; refuse what no client of ours may ask."""
        if problem := self._wrong(asked):
            return _say(request, 400, {"error": "invalid_request", "error_description": problem})
        choices = [(str(person["sub"]), f"Continue as {person.get('name', person['sub'])}") for person in self.people]
        links = "".join(
            f'<p><a href="/chosen?{html.escape(urlencode({**asked, "who": who}))}">{html.escape(words)}</a></p>'
            for who, words in [*choices, ("", "Refuse")]
        )
        _send(request, 200, f"<!doctype html><title>Provider of tests</title>{links}".encode(), "text/html")

    def _wrong(self, asked: Fields) -> str:
        wanted = {"client_id": CLIENT, "response_type": "code", "code_challenge_method": "S256"}
        if wrong := [name for name, value in wanted.items() if asked.get(name) != value]:
            return f"{wrong[0]} is wrong"
        if asked.get("redirect_uri") not in self.redirect_uris:
            return "redirect_uri is not registered"
        needed = ("state", "nonce", "code_challenge")
        return next((f"{name} is missing" for name in needed if not asked.get(name)), "")

    def _chosen(self, request: BaseHTTPRequestHandler, asked: Fields) -> None:
        """Send the browser back with a code, or with the refusal."""
        if problem := self._wrong(asked):
            return _say(request, 400, {"error": "invalid_request", "error_description": problem})
        person = next((person for person in self.people if person["sub"] == asked.get("who")), None)
        answer = {"error": "access_denied", "error_description": "the person refused"}
        if person is not None:
            code = secrets.token_urlsafe(16)
            self._codes[code] = Grant(asked, person)
            answer = {"code": code}
        _redirect(request, f"{asked['redirect_uri']}?{urlencode({**answer, 'state': asked['state']})}")

    def _token(self, request: BaseHTTPRequestHandler, posted: Fields) -> None:
        """Change a code for an ID token, once."""
        grant = self._codes.pop(posted.get("code", ""), None)
        if _client_of(request, posted) != (CLIENT, CLIENT_SECRET):
            return _say(request, 401, {"error": "invalid_client"})
        if grant is None or posted.get("redirect_uri") != grant.asked["redirect_uri"]:
            return _say(request, 400, {"error": "invalid_grant"})
        if _challenge(posted.get("code_verifier", "")) != grant.asked["code_challenge"]:
            return _say(request, 400, {"error": "invalid_grant", "error_description": "PKCE"})
        token = {"access_token": secrets.token_urlsafe(16), "token_type": "Bearer", "expires_in": LIFETIME_SECONDS}
        _say(request, 200, {**token, "id_token": self._id_token(grant)})

    def _id_token(self, grant: Grant) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + LIFETIME_SECONDS}
        header = {"alg": "RS256", "kid": "tests"}
        return jwt.encode(header, {**claims, "nonce": grant.asked["nonce"], **grant.person}, self._key)

    def _end(self, request: BaseHTTPRequestHandler, asked: Fields) -> None:
        """End the session here, of which there is none, and send the browser back."""
        where = asked.get("post_logout_redirect_uri", "")
        if where not in self.redirect_uris:
            return _say(request, 400, {"error": "invalid_request"})
        _redirect(request, where)


def _client_of(request: BaseHTTPRequestHandler, posted: Fields) -> tuple[str, str]:
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        name, _, secret = base64.b64decode(shown).decode().partition(":")
        return name, secret
    return posted.get("client_id", ""), posted.get("client_secret", "")


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def _redirect(request: BaseHTTPRequestHandler, where: str) -> None:
    request.send_response(302)
    request.send_header("Location", where)
    request.send_header("Content-Length", "0")
    request.end_headers()


def _say(request: BaseHTTPRequestHandler, status: int, content: Mapping[str, Any]) -> None:
    _send(request, status, json.dumps(content).encode(), "application/json")


def _send(request: BaseHTTPRequestHandler, status: int, body: bytes, kind: str) -> None:
    request.send_response(status)
    request.send_header("Content-Type", f"{kind}; charset=utf-8")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
