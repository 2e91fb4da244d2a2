"""Hold the sign-in: what its file may be, who may read and write with it, when a session ends, what leaks to nobody."""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from itsdangerous import TimestampSigner, URLSafeTimedSerializer
from tests.app.console_server import RUN, Console, run_directory
from tests.app.oidc_provider import COOKIE_SECRET, Provider
from tests.app.streamlit_tab import Tab
from tests.exporter.histories import History

from lastgood.errors import ConfigError
from lastgood_console import server
from lastgood_console.actions import MOST_NAME_LETTERS
from lastgood_console.http.door import BACK, FAILED, page_of
from lastgood_console.http.operations import OPERATIONS
from lastgood_console.http.sessions import FILE, session_hours
from lastgood_console.server import free_port
from lastgood_console.sign_in import who
from lastgood_console.sign_in_file import check_installed, doubts, providers_of, read_auth

pytestmark = pytest.mark.slow

TOKEN = "a token of tests"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}
USER = "_streamlit_user"
PREFIX = "/lastgood"
DAY = 86_400
SESSION_DAYS = 30
INCIDENT = f"/incident?run={RUN}"
READS = [found.path for found in OPERATIONS if found.access == "read" and "{" not in found.path]
WRITES = [found.path for found in OPERATIONS if found.access == "write"]
AUTH = {
    "redirect_uri": "https://console.example.org/oauth2callback",
    "cookie_secret": COOKIE_SECRET,
    "client_id": "lastgood",
    "client_secret": "a client's secret",
    "server_metadata_url": "https://login.example.org/.well-known/openid-configuration",
}
PROVIDER = {key: AUTH[key] for key in ("client_id", "client_secret", "server_metadata_url")}
SHARED = {key: AUTH[key] for key in ("redirect_uri", "cookie_secret")}

PART = b"known since"
"""What the part of an incident's page says that is drawn again by itself."""


# the file


def test_the_file_of_the_documentation_is_read_once_its_secret_is_random() -> None:
    page = (Path(__file__).parents[2] / "docs/console.md").read_text(encoding="utf-8")
    auth = tomllib.loads(page.split("```toml\n")[1].partition("```")[0])["auth"]
    with pytest.raises(ConfigError, match="cookie_secret is not random"):
        providers_of(auth)
    assert providers_of({**auth, "cookie_secret": COOKIE_SECRET}) == ("",)


@pytest.mark.parametrize(
    ("auth", "found"),
    [
        (AUTH, ("",)),
        ({**SHARED, "okta": PROVIDER, "google": PROVIDER}, ("okta", "google")),
        ({**AUTH, "okta": PROVIDER}, ("", "okta")),
        ({**AUTH, "client_kwargs": {"scope": "openid"}, "expose_tokens": "id"}, ("",)),
    ],
)
def test_one_can_sign_in_with_each_provider_that_the_file_has(auth: Mapping[str, Any], found: tuple[str]) -> None:
    assert providers_of(auth) == found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"redirect_uri": None}, r"redirect_uri '' must be the console's address .* followed by /oauth2callback"),
        ({"redirect_uri": "console.example.org"}, r"redirect_uri 'console.example.org' must be"),
        ({"redirect_uri": "https://console.example.org/callback"}, r"such as https://console.example.org/oauth2"),
        ({"redirect_uri": "https://c/oauth2callback?x=1"}, r"must be the console's address"),
        ({"redirect_uri": f"https://c{PREFIX}/oauth2callback"}, r"followed by /oauth2callback"),
        (
            {"redirect_uri": "https://C.example.org/oauth2callback"},
            r"must name the host as browsers do, in small letters",
        ),
        ({"redirect_uri": "https://c:443/oauth2callback"}, r"without a user or the usual port: a session"),
        ({"redirect_uri": "http://me@c/oauth2callback"}, r"without a user or the usual port: a session"),
        ({"cookie_secret": None}, r"cookie_secret needs 32 letters or more: `openssl rand -hex 32`"),
        ({"cookie_secret": "hunter2"}, r"cookie_secret needs 32 letters"),
        ({"cookie_secret": 12345}, r"cookie_secret needs 32 letters"),
        ({"cookie_secret": "ab" * 40}, r"cookie_secret is not random"),
        ({"client_id": None, "client_secret": ""}, r"\[auth\] has no client_id, client_secret: docs/console.md"),
        ({"server_metadata_url": "login.example.org"}, r"server_metadata_url 'login.example.org' is no address"),
        ({"client_secrt": "x"}, r"\[auth\] has client_secrt, which nobody reads: it may have client_id, "),
        ({"okta": {"client_id": "x"}}, r"\[auth.okta\] has no client_secret, server_metadata_url"),
        ({"okta": {**PROVIDER, "domain": "x"}}, r"\[auth.okta\] has domain, which nobody reads"),
        ({"my_okta": PROVIDER}, r"\[auth.my_okta\] is no name for a provider: letters, digits and -"),
    ],
)
def test_what_is_wrong_with_it_is_one_error_without_a_secret(change: dict[str, Any], said: str) -> None:
    auth = {key: value for key, value in {**AUTH, **change}.items() if value is not None}
    with pytest.raises(ConfigError, match=said) as refused:
        providers_of(auth)
    for secret in ("hunter2", "12345", "abab", COOKIE_SECRET, AUTH["client_secret"]):
        assert secret not in str(refused.value)


def test_below_a_prefix_the_way_back_ends_with_it() -> None:
    with pytest.raises(ConfigError, match=f"must be .* followed by {PREFIX}/oauth2callback"):
        providers_of(AUTH, PREFIX)
    assert providers_of({**AUTH, "redirect_uri": f"https://c{PREFIX}/oauth2callback"}, PREFIX) == ("",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"cannot be read \(No such file or directory\)"),
        ("[auth]\nsecret = hunter2\n", r"is not TOML: docs/console.md shows the file"),
        ("\udcff", r"is not TOML"),
        ("[other]\nx = 1\n", r"has no table \[auth\]"),
        ("auth = 1\n", r"has no table \[auth\]"),
    ],
)
def test_a_console_does_not_start_without_a_good_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    file = tmp_path / "secrets.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ConfigError, match=said):
        read_auth(file)
    assert server.main([str(tmp_path), "--sign-in", str(file)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"lastgood console: --sign-in {file} ")
    assert shown.count("\n") == 1
    assert "hunter2" not in shown


def test_what_is_allowed_and_should_not_be_is_said(tmp_path: Path) -> None:
    file = tmp_path / "secrets.toml"
    file.touch(mode=0o600)
    assert list(doubts(file, {**AUTH, "redirect_uri": "http://localhost:8490/oauth2callback"})) == []
    file.chmod(0o644)
    readable, wire = doubts(file, {**AUTH, "okta": {**PROVIDER, "server_metadata_url": "http://login.example.org/x"}})
    assert readable.endswith("every user of this machine can read it: chmod 600")
    assert wire.startswith("sign-in goes to login.example.org over http:")


def test_without_authlib_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "authlib", None)
    with pytest.raises(ConfigError, match=r'--sign-in needs Authlib 1.3.2 or later: pip install "lastgood\[sign-in\]"'):
        check_installed()


def test_without_what_authlib_wants_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name for name in sys.modules if name.startswith("authlib.integrations")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ConfigError, match=r"--sign-in needs httpx, which this Authlib wants: pip install"):
        check_installed()


def test_a_streamlit_that_keeps_sessions_otherwise_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lastgood_console.http.streamlit_session", raising=False)
    monkeypatch.delattr("streamlit.web.server.starlette.starlette_app_utils.decode_signed_value")
    with pytest.raises(ConfigError, match=r"Streamlit \S+ keeps sessions in another way .*decode_signed_value"):
        check_installed()


def test_this_streamlit_keeps_sessions_as_this_console_reads_them() -> None:
    check_installed()  # else: say in http/streamlit_session.py how this Streamlit keeps them, or bound the version


# who one is, and where one comes back to


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"name": "Ada Lovelace", "email": "ada@example.org", "sub": "1"}, "Ada Lovelace (ada@example.org)"),
        ({"name": "Ada", "email": "root@example.org", "email_verified": False, "sub": "u-1"}, "Ada (u-1)"),
        ({"email": "ada@example.org", "sub": "1"}, "ada@example.org"),
        ({"sub": "1"}, "1"),
        ({}, "somebody signed in"),
        ({"name": "A\nd\x1ba\u202e", "sub": "1"}, "A d\ufffda\ufffd (1)"),
        ({"name": "A" * 90, "email": "ada@example.org"}, "ada@example.org"),
        ({"sub": "x" * 200}, "x" * MOST_NAME_LETTERS),
        ({"name": None, "email": 7}, "7"),
    ],
)
def test_a_person_is_named_with_what_nobody_else_has(claims: dict[str, Any], said: str) -> None:
    assert who(claims) == said


ORIGIN = "https://console.example.org"


@pytest.mark.parametrize(
    ("address", "base", "page"),
    [
        (f"{ORIGIN}{INCIDENT}", "", INCIDENT),
        (f"{ORIGIN}/", "", "/"),
        (f"{ORIGIN}{PREFIX}/nodes?node=a%2Fb", PREFIX, f"{PREFIX}/nodes?node=a%2Fb"),
        (f"{ORIGIN}/nodes", PREFIX, ""),
        (ORIGIN, "", ""),
        ("https://evil.example.org/nodes", "", ""),
        (f"{ORIGIN}.evil.org/nodes", "", ""),
        (f"{ORIGIN}@evil.org/nodes", "", ""),
        (f"{ORIGIN}//evil.org/nodes", "", ""),
        (f"{ORIGIN}/\\evil.org", "", ""),
        (f"{ORIGIN}/x\r\nSet-Cookie: a=b", "", ""),
        (f"{ORIGIN}/oauth2callback?code=1", "", ""),
        (f"{ORIGIN}/{'x' * 2000}", "", ""),
        ("https://[", "", ""),
        ("", "", ""),
    ],
)
def test_one_comes_back_to_a_page_of_this_console_alone(address: str, base: str, page: str) -> None:
    assert page_of(address, ORIGIN, base) == page
    assert page_of(address, "", base) == ""


# through a console


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider() as started:
        yield started


def signing_in(
    provider: Provider, place: Path, base: str = "", *, address: str = "", name: str = "", more: Sequence[str] = ()
) -> Console:
    """Return a console that asks people to sign in, not started yet.

    ``address``: as its visitors come, where that is another; ``name``: of the provider.
    """
    port = free_port("127.0.0.1", 18_700)
    file, address = place / "secrets.toml", address.format(port=port) or f"http://127.0.0.1:{port}"
    file.write_text(provider.secrets_toml(f"{address}{base}/oauth2callback", name), encoding="utf-8")
    file.chmod(0o600)
    options = ("--sign-in", str(file), *(("--base-path", base) if base else ()), *more)
    return Console(place, port=port, options=options, token=TOKEN)


@pytest.fixture(scope="module")
def console(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    place = tmp_path_factory.mktemp("runs")
    run_directory(place)
    with signing_in(provider, place) as started:
        yield started


@pytest.fixture
def ada(provider: Provider, console: Console) -> httpx.Client:
    return provider.sign_in(console.address)[0]


def cookies_of(client: httpx.Client) -> dict[str, str]:
    """Return the cookies that a client holds for the console."""
    return {cookie.name: cookie.value or "" for cookie in client.cookies.jar}


def signed(console: Console, *, age: float = 0.0, secret: str = COOKIE_SECRET, **more: Any) -> dict[str, str]:
    """Return a session's cookie as Streamlit signs it, made ``age`` seconds ago."""

    class Signer(TimestampSigner):
        def get_timestamp(self) -> int:
            return int(time.time() - age)

    said = {"sub": "u-1", "name": "Ada", "origin": console.address, "is_logged_in": True, "provider": "default"} | more
    made: Any = URLSafeTimedSerializer(secret, salt=USER, signer=Signer).dumps(json.dumps(said))
    return {USER: made}


def status(console: Console, path: str, cookies: Mapping[str, str] | None = None, **headers: str) -> int:
    sent = {"Cookie": "; ".join(f"{name}={value}" for name, value in (cookies or {}).items())} if cookies else {}
    return console.request("GET", path, headers={**sent, **headers}).status_code


@pytest.mark.parametrize("path", [*READS, "/api/", "/api/nothing", f"/api/runs/{RUN}/incidents"])
def test_whoever_shows_nothing_reads_nothing(console: Console, path: str) -> None:
    answer = console.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/json")
    assert "sign in on the console's pages first, or send" in answer.json()["error"]
    assert RUN not in answer.text


@pytest.mark.parametrize("path", READS)
def test_the_token_reads_and_so_does_a_session(console: Console, ada: httpx.Client, path: str) -> None:
    assert status(console, path, **SHOWN) == 200
    assert ada.get(console.address + path).status_code == 200
    assert status(console, path, cookies_of(ada), Authorization="Bearer wrong") == 401


def test_health_is_open_and_what_streamlit_serves_beside_pages_is_not(console: Console, ada: httpx.Client) -> None:
    assert console.get("/healthz").status_code == 200
    for path in ("/media/0123.json", "/_stcore/metrics", "/_stcore/upload_file/a/b"):
        assert console.get(path).status_code == 401
    assert ada.get(f"{console.address}/media/0123.json").status_code == 404
    assert ada.get(f"{console.address}/_stcore/metrics").status_code == 200


def test_no_browser_keeps_what_is_only_for_who_is_signed_in(console: Console, ada: httpx.Client) -> None:
    for path in ("/api/runs", "/metrics", "/media/0123.json", "/api/nothing"):
        assert ada.get(console.address + path).headers["cache-control"] == "no-store"
        assert console.get(path).headers["cache-control"] == "no-store"


def test_a_session_as_streamlit_signs_it_is_taken_while_it_is_young(console: Console) -> None:
    assert status(console, "/api/runs", signed(console)) == 200
    assert status(console, "/api/runs", signed(console, age=SESSION_DAYS * DAY - 60)) == 200


@pytest.mark.parametrize(
    "forged",
    [
        lambda c: signed(c, age=SESSION_DAYS * DAY + 60),
        lambda c: signed(c, secret="fedcba9876543210" * 4),
        lambda c: signed(c, is_logged_in=False),
        lambda c: signed(c, is_logged_in="true"),
        lambda c: signed(c, origin="https://console.example.org"),
        lambda c: {USER: signed(c)[USER][:-8]},
        lambda c: {USER: "x" + signed(c)[USER]},
        lambda c: {USER: json.dumps({"is_logged_in": True, "origin": c.address})},
        lambda c: {USER: ""},
        lambda c: {"_streamlit_user_tokens": signed(c)[USER]},
    ],
    ids=["old", "other secret", "not signed in", "text", "other origin", "cut", "changed", "bare", "empty", "other"],
)
def test_a_session_that_is_forged_changed_or_old_is_none(
    console: Console, forged: Callable[[Console], dict[str, str]]
) -> None:
    assert status(console, "/api/runs", forged(console)) == 401
    with Tab(console, forged(console)) as tab:
        assert RUN.encode() not in tab.ask(page="incident", query=f"run={RUN}")


@pytest.mark.parametrize("path", WRITES)
def test_a_session_writes_nothing(console: Console, ada: httpx.Client, path: str) -> None:
    posted = [event.to_dict() for event in History(run="posted").start().events]
    answer = ada.post(console.address + path, json=posted)
    assert answer.status_code == 401
    assert "no token was shown" in answer.json()["error"]
    assert status(console, "/api/runs", **SHOWN) == 200
    assert "posted" not in console.request("GET", "/api/runs", headers=SHOWN).text
    assert console.request("POST", "/api/events", json=posted[:0], headers=SHOWN).status_code in (200, 400)


# the pages' own connection


PAGES = ("", "incident", "nodes", "checkpoints", "alerts", "runbook")


@pytest.mark.slow
def test_no_page_says_a_word_to_nobody(console: Console, ada: httpx.Client) -> None:
    with Tab(console, cookies_of(ada)) as known, Tab(console, {}) as unknown:
        for page in PAGES:
            told = known.ask(page=page, query=f"run={RUN}&name=RankSilent")
            hashes, parts = known.pages(), known.parts()
            assert parts, page
            if page not in ("alerts", "runbook"):
                assert RUN.encode() in told, page
            for asked in ({"page": page}, *({"page_hash": found} for found in hashes.values())):
                unknown.ask(query=f"run={RUN}", **asked)
            for part in parts:
                unknown.ask(part=part, wait_seconds=0.5)
        assert b"Sign in" in unknown.heard
        for word in (RUN, "node-b", "step 50", "r-6d"):
            assert word.encode() not in unknown.heard, word


def test_a_part_of_a_page_is_drawn_again_for_who_is_signed_in(console: Console, ada: httpx.Client) -> None:
    with Tab(console, cookies_of(ada)) as tab:
        tab.ask(page="incident", query=f"run={RUN}")
        (part,) = tab.parts()
        assert PART in tab.ask(part=part)


def test_nobody_goes_on_with_the_session_of_another(console: Console, ada: httpx.Client) -> None:
    with Tab(console, cookies_of(ada)) as tab:
        tab.ask(page="incident", query=f"run={RUN}")
        (part,), session = tab.parts(), tab.session()
        for cookies in ({}, signed(console, sub="u-2")):
            with Tab(console, cookies, session=session) as other:
                other.ask(part=part, wait_seconds=0.5)
                assert PART not in other.heard
                assert RUN.encode() not in other.heard
    with Tab(console, {}, session=session) as later:
        later.ask(part=part, wait_seconds=0.5)
        assert PART not in later.heard
        assert RUN.encode() not in later.heard


def test_a_sign_out_ends_one_session_of_a_person(provider: Provider, console: Console) -> None:
    here, there = (cookies_of(provider.sign_in(console.address)[0]) for _ in range(2))
    assert status(console, "/auth/logout", here) == 302
    assert [status(console, "/api/runs", one) for one in (here, there)] == [401, 200]


def test_a_sign_out_ends_every_tab_and_every_copy(console: Console, ada: httpx.Client) -> None:
    copied = cookies_of(ada)
    with Tab(console, copied) as tab:
        assert RUN.encode() in tab.ask(page="incident", query=f"run={RUN}")
        (part,) = tab.parts()
        assert ada.get(f"{console.address}/auth/logout").status_code == 302
        assert USER not in cookies_of(ada)
        assert RUN.encode() not in tab.ask(part=part)
        assert (tab.drawn(), tab.closed) == (0, 1008)
    with Tab(console, copied) as again:
        assert RUN.encode() not in again.ask(page="incident", query=f"run={RUN}")
        assert b"Sign in" in again.heard
    assert status(console, "/api/runs", copied) == 401
    assert status(console, "/media/0123.json", copied) == 401


@pytest.mark.slow
def test_a_session_that_grows_old_under_an_open_page_is_closed(console: Console) -> None:
    with Tab(console, signed(console, age=SESSION_DAYS * DAY - 4)) as tab:
        assert RUN.encode() in tab.ask(page="incident", query=f"run={RUN}")
        (part,) = tab.parts()
        time.sleep(5.5)
        assert RUN.encode() not in tab.ask(part=part)
        assert (tab.drawn(), tab.closed) == (0, 1008)


def test_a_sign_out_holds_after_a_restart_and_for_nobody_else(provider: Provider, tmp_path: Path) -> None:
    run_directory(tmp_path)
    with signing_in(provider, tmp_path) as first:
        ada, grace = (cookies_of(provider.sign_in(first.address, who)[0]) for who in ("u-1", "u-2"))
        assert status(first, "/auth/logout", ada) == 302
        assert [status(first, "/api/runs", one) for one in (ada, grace)] == [401, 200]
        options = ("--sign-in", str(tmp_path / "secrets.toml"))
    kept = tmp_path / ".lastgood" / FILE
    kept.write_bytes(b"nonsense\n\n12 ab\n" + kept.read_bytes())
    with Console(tmp_path, port=first.port, options=options, token=TOKEN) as second:
        assert [status(second, "/api/runs", one) for one in (ada, grace)] == [401, 200]


# to the provider and back


def test_one_comes_back_to_the_page_one_asked_for(provider: Provider, console: Console) -> None:
    client, led = provider.sign_in(console.address, page=INCIDENT)
    assert led == INCIDENT
    assert BACK not in cookies_of(client)


def test_who_refuses_comes_back_and_is_told_so(provider: Provider, console: Console) -> None:
    client, led = provider.sign_in(console.address, "nobody", page=INCIDENT)
    assert led == INCIDENT
    assert (USER in cookies_of(client), cookies_of(client)[FAILED]) == (False, "1")
    with Tab(console, cookies_of(client)) as tab:
        assert b"You came back without being signed in" in tab.ask(page="incident")


def test_where_no_provider_answers_one_is_told_so(tmp_path: Path) -> None:
    with Provider() as away:
        console = signing_in(away, tmp_path)
        passed = away.passed()
    with console:
        answer = console.request(
            "GET", f"/auth/login?provider={passed}", headers={"referer": console.address + INCIDENT}
        )
        assert (answer.status_code, answer.headers["location"]) == (302, INCIDENT)
        assert f"{FAILED}=1" in answer.headers["set-cookie"]


def test_who_has_another_address_of_the_console_is_led_to_the_one_where_one_signs_in(console: Console) -> None:
    other = console.address.replace("127.0.0.1", "localhost")
    with Tab(console, {}, origin=other) as tab:
        told = tab.ask(page="incident", query=f"run={RUN}").decode(errors="replace")
    assert f'<a href="{console.address}/">' in told
    assert f"not at {other}." in told


def test_a_way_back_that_nobody_began_signs_nobody_in(provider: Provider, console: Console) -> None:
    client = httpx.Client(headers={"connection": "close"})
    for query in ("", "?code=x&state=y", "?error=access_denied&state=y"):
        answer = client.get(f"{console.address}/oauth2callback{query}", headers={"Cookie": f"{BACK}=%2F%2Fevil.org"})
        assert (answer.status_code, answer.headers["location"]) in [(302, "/"), (307, "/")]
        assert USER not in cookies_of(client)


def test_below_a_prefix_all_of_it_works_the_same(provider: Provider, tmp_path: Path) -> None:
    run_directory(tmp_path)
    with signing_in(provider, tmp_path, PREFIX) as console:
        there = console.address + PREFIX
        client, led = provider.sign_in(there, page=INCIDENT)
        assert led == PREFIX + INCIDENT
        assert {cookie.path for cookie in client.cookies.jar if cookie.name.startswith(USER)} == {PREFIX}
        assert client.get(f"{there}/api/runs").status_code == 200
        with Tab(console, cookies_of(client), PREFIX) as tab:
            assert RUN.encode() in tab.ask(page="incident", query=f"run={RUN}")
        assert client.get(f"{there}/auth/logout").status_code == 302
        assert client.get(f"{there}/api/runs").status_code == 401


def test_a_session_lasts_as_long_as_the_console_is_told(provider: Provider, tmp_path: Path) -> None:
    with signing_in(provider, tmp_path, more=("--session-hours", "8")) as console:
        young, old = signed(console, age=8 * 3600 - 60), signed(console, age=8 * 3600 + 60)
        assert [status(console, "/api/runs", one) for one in (young, old)] == [200, 401]
        with Tab(console, old) as tab:
            assert b"Sign in" in tab.ask(page="")
    for hours in ("0", "721", "x", "1.5", "\u0661"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no number of hours from 1 to 720"):
            session_hours(hours)


def test_cookies_are_for_https_alone_where_visitors_come_over_https(provider: Provider, tmp_path: Path) -> None:
    with signing_in(provider, tmp_path, address="https://127.0.0.1:{port}") as console:
        client, led = provider.sign_in(console.address)
        assert (led, {cookie.secure for cookie in client.cookies.jar if cookie.name.startswith(USER)}) == ("/", {True})
        assert status(console, "/api/runs", cookies_of(client)) == 200


def test_a_provider_with_a_name_has_a_button_of_its_own(provider: Provider, tmp_path: Path) -> None:
    with signing_in(provider, tmp_path, name="okta-eu") as console:
        with Tab(console, {}) as tab:
            assert b"Sign in with okta-eu" in tab.ask(page="")
        client, led = provider.sign_in(console.address, page=INCIDENT, name="okta-eu")
        assert (led, client.get(f"{console.address}/api/runs").status_code) == (INCIDENT, 200)
        assert client.get(f"{console.address}/auth/logout").headers["location"].startswith(f"{provider.issuer}/end?")


def test_a_sign_out_that_cannot_be_kept_is_said_and_holds_all_the_same(provider: Provider, tmp_path: Path) -> None:
    (tmp_path / ".lastgood" / FILE).mkdir(parents=True)
    with signing_in(provider, tmp_path) as console:
        ada = cookies_of(provider.sign_in(console.address)[0])
        assert status(console, "/auth/logout", ada) == 302
        assert status(console, "/api/runs", ada) == 401
    assert "a sign-out holds until this console ends: " in console.said()


def test_a_console_without_sign_in_asks_nobody(tmp_path: Path) -> None:
    run_directory(tmp_path)
    with Console(tmp_path) as console, Tab(console, {}) as tab:
        assert RUN.encode() in tab.ask(page="incident", query=f"run={RUN}")
        assert b"Sign out" not in tab.heard
