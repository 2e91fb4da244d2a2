from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from tests.app import hostile_words
from tests.app.fixtures import states

from lastgood.state import RunState
from lastgood_console.export import document, markdown, markup

HEADINGS = ["Summary", "Impact", "Timeline", "Suspects", "Checkpoints", "Actions", "What is not known"]
NEVER = {"link_open", "image", "html_inline", "html_block", "fence", "code_block", "blockquote_open", "hr"}


def written(state: RunState) -> str:
    return markdown.render(document.to_document(state, state.incidents[0]))


def parsed(text: str) -> list[Token]:
    """Return all tokens of a renderer that reads tables, strikes out and lets HTML through."""
    found = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    return list(flat(found))


def flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from flat(token.children or [])


def plain(text: str) -> str:
    """Return what a reader sees of one paragraph."""
    return "".join(t.content for t in parsed(text) if t.type in ("text", "code_inline"))


def headings(text: str, level: str = "h2") -> list[str]:
    tokens = parsed(text)
    return [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open" and t.tag == level]


def cells(text: str) -> list[int]:
    """Return the number of cells of every row of every table, as the renderer counts them."""
    counts: list[int] = []
    for token in parsed(text):
        counts += [0] if token.type == "tr_open" else []
        counts[-1:] = [counts[-1] + 1] if token.type in ("td_open", "th_open") else counts[-1:]
    return counts


@pytest.mark.parametrize("row", states.ROWS)
def test_it_has_the_headings_of_a_post_mortem_and_the_same_bytes_each_time(row: str) -> None:
    known = document.to_document(states.ROWS[row](), states.ROWS[row]().incidents[0])
    text = markdown.render(known)
    assert headings(text) == HEADINGS
    assert markdown.render(document.loads(document.dumps(known))) == text


def test_it_says_who_lied_what_to_use_and_what_people_did() -> None:
    text = written(states.gradient())
    assert "**Rank 3 (node-b, slot 1) computed wrong gradients in steps (50, 100].**" in text
    assert "| Resume from | step 50 of attempt 1, trusted: `checkpoints/a1-step-000050`, without node-b." in text
    assert "| Do not use | step 75 (suspect): `checkpoints/a1-step-000075` |" in text
    assert "- 2026-11-29 03:04:00 mira: Note: drained node-b, ticket 4711" in text
    assert "- The first wrong step: replay ran at 50 and 100, so any of 51 to 100." in text


def test_the_story_has_both_clocks() -> None:
    row = "| steps (50, 100] | 2026-11-29 02:57:02 | Replay failed: rank 3, blocks.1.mlp.up.weight | lastgood |"
    assert row in written(states.gradient())


@pytest.mark.parametrize("row", states.ROWS)
def test_every_table_keeps_its_shape(row: str) -> None:
    assert set(cells(written(states.ROWS[row]()))) == {2, 4, 5, 8} - ({5} if row == "-" else set())


HOSTILE = (
    '"><script>alert(1)</script><img src=x onerror=alert(2)>',
    "[click](https://evil.example) ![x](https://evil.example/x.png)",
    "<https://evil.example> https://evil.example www.evil.example mira@evil.example @mira #12",
    "a | b \\| c \\\\| `d | e` \\`|\\",
    "# heading\n\n- list\n\n> quote\n\n---\n\n```\ncode\n```\n\n    indented",
    "`` ` ``` unclosed *bold* _it_ ~~gone~~ $x$ {{ x }} &lt;b&gt; &#60;b&#62;",
    "1. one\r\n2) two\u2028three\x0bfour\x85=====",
    "\\",
    "`",
    "|",
)


@pytest.mark.parametrize("words", HOSTILE)
def test_nothing_that_others_wrote_becomes_markup(words: str) -> None:
    text = written(hostile_words.everywhere(words))
    kinds = [token.type for token in parsed(text)]
    assert set(kinds) & (NEVER - {"hr"}) == set()
    assert kinds.count("hr") == 1
    assert headings(text) == HEADINGS
    assert set(cells(text)) == {2, 4, 5, 8}
    assert not {"em_open", "s_open"} & set(kinds)


LINKS = re.compile(r"://|www\.|[\w.]@[\w.]|(?<!\w)@\w", re.IGNORECASE)
"""What GitHub, GitLab and others make a link or a mention of by themselves, outside code."""


@pytest.mark.parametrize("words", HOSTILE)
def test_nothing_outside_code_can_be_linked_by_a_renderer_itself(words: str) -> None:
    tokens = parsed(written(hostile_words.everywhere(words)))
    assert not [t.content for t in tokens if t.type == "text" and LINKS.search(t.content)]


@given(st.text())
@example("\\|`")
@example("_a_ b_c _")
@example("10. x")
def test_words_are_read_as_they_were_written(text: str) -> None:
    seen = plain(f"Note: {markup.words(text)}")
    assert seen.replace("\u2068", "").replace("\u2069", "") == f"Note: {markup.one_line(text)}".rstrip(" ")


@given(st.text(alphabet="`|\\ ab<&*"))
def test_code_is_read_as_it_was_written_in_a_cell_too(text: str) -> None:
    expected = markup.one_line(text)
    row = "\n".join(markup.table(("a", "b"), [(markup.code(text), "end")]))
    assert cells(row) == [2, 2]
    seen = [t for t in parsed(row) if t.type in ("text", "code_inline")]
    assert "".join(t.content for t in seen[2:-1]) == (expected or "–")


@given(st.text(alphabet="`|\\ ab@_"))
def test_no_bar_stands_in_a_cell_not_even_behind_a_backslash(text: str) -> None:
    assert "|" not in markup.code(text) + markup.words(text)  # renderers differ in what a backslash before it means


@pytest.mark.parametrize("words", [hostile_words.HEBREW, hostile_words.ARABIC])
def test_right_to_left_words_are_isolated(words: str) -> None:
    text = written(hostile_words.everywhere(words))
    assert f"| \u2068`{words}`\u2069 |" in text
    assert f"Note: \u2068{words}\u2069 | \u2068{words}\u2069 |" in text
    assert text.count("\u2068") == text.count("\u2069")


def test_left_to_right_words_are_not() -> None:
    assert "\u2068" not in written(hostile_words.everywhere(hostile_words.CHINESE))


def test_what_turns_the_writing_direction_shows_as_a_mark() -> None:
    text = written(hostile_words.everywhere(hostile_words.OVERRIDE))
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067") & set(text)
    assert "`step-\ufffd05\ufffd-dab`" in text


def test_an_incident_without_anything_says_so() -> None:
    known: dict[str, Any] = document.to_document(states.data(), states.data().incidents[0])
    known |= {"suspects": [], "checkpoints": [], "timeline": []}
    text = markdown.render(known)
    assert "Nobody is named." in text
    assert "Nothing saved yet." in text
    assert "### What people did and said\n\nNothing yet." in text
