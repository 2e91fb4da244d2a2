"""Let nobody see a page who is not signed in, when sign-in is on: Streamlit's, by OpenID Connect.

It is on when the console is started with ``--sign-in FILE`` (:mod:`.sign_in_file`). That is decided once, at the start:
a file that is changed or lost later shuts people out and lets nobody in. A page that is open is watched by
:mod:`.http.door`, since a page draws itself again without coming past here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import streamlit as st

from lastgood_console.actions import MOST_NAME_LETTERS
from lastgood_console.characters import escape, one_line
from lastgood_console.components.heads import page_head
from lastgood_console.http.door import FAILED

NOT_SIGNED_IN: Final = "You came back without being signed in: try again, or see the console's log for the reason."

_providers: tuple[str, ...] = ()


def require(providers: Sequence[str]) -> None:
    """Ask every visitor of this process to sign in with one of these; with none, nobody is asked."""
    global _providers
    _providers = tuple(providers)


def gate() -> None:
    """Draw the way in, and nothing behind it, for a visitor who is not signed in."""
    if not _providers or _is_signed_in():
        return
    from lastgood_console.http.streamlit_session import origin  # what it needs of Streamlit is checked with sign-in on

    st.html(page_head("Sign in to see the runs.", "This console shows them to people who are signed in.", ""))
    if note := elsewhere(st.context.headers.get("Origin", ""), origin(), st.get_option("server.baseUrlPath")):
        st.html(note)
        st.stop()
    if FAILED in st.context.cookies:
        st.html(f'<div class="lg-stale" role="alert">{NOT_SIGNED_IN}</div>')
    with st.container(key="lg-sign-in"):
        for name in _providers:
            said = f"Sign in with {name}" if name else "Sign in"
            st.button(said, type="primary", on_click=st.login, args=(name,) if name else (), key=f"sign-in-{name}")
    st.stop()


def elsewhere(here: str, there: str, base: str) -> str:
    """Lead from an address where nobody can sign in, since a session is good at ``there`` alone; "" where it is right.

    ``here``: the origin that the browser has, "" when it is not known; ``base``: the path prefix.
    """
    if here in ("", there):
        return ""
    address = escape(f"{there}/{base}")
    words = f'One signs in at <a href="{address}">{address}</a>, not at {escape(here)}.'
    return f'<div class="lg-empty">{words}</div>'


def person() -> str:
    """Return who is signed in, as it is journaled; "" when sign-in is off or nobody is."""
    return who(st.user.to_dict()) if _providers and _is_signed_in() else ""


def sign_out_button() -> None:
    """Draw who is signed in, and the way out; nothing when sign-in is off."""
    if said := person():
        short = one_line(str(st.user.get("name") or "")) or said
        st.html(f'<div class="lg-person" title="{escape(said)}">{escape(short)}</div>')
        st.button("Sign out", key="sign-out", on_click=st.logout, type="tertiary", help="In all tabs of this browser")


def who(claims: Mapping[str, Any]) -> str:
    """Return the name of a person from the claims of the provider: "Ada Lovelace (ada@example.org)".

    Most providers let people choose their name, so what nobody else there has stands beside it: the e-mail address,
    unless the provider says that it did not verify it, else the subject.
    """
    name, sure = one_line(str(claims.get("name") or "")), str(claims.get("sub") or "")
    if claims.get("email") and claims.get("email_verified") is not False:
        sure = str(claims["email"])
    sure = one_line(sure)
    whole = f"{name} ({sure})" if name and sure else name or sure or "somebody signed in"
    return whole if len(whole) <= MOST_NAME_LETTERS else (sure or name)[:MOST_NAME_LETTERS]


def _is_signed_in() -> bool:
    return getattr(st.user, "is_logged_in", False) is True
