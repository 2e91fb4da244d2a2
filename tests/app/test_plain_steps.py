"""Hold the files that people search to plain digits, whatever their sentences are made of."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.app.fixtures import states

from lastgood import wording
from lastgood_console.export import document
from lastgood_console.export.formats import render


def content(path: str = "") -> dict[str, Any]:
    """Return an incident whose words speak of step 17 400 as a page does."""
    state = states.gradient()
    found = document.to_document(state, state.incidents[0])
    grouped = wording.step_text(17_400)
    found["words"]["headline"] = f"Rank 3 computed wrong gradients at step {grouped}."
    found["timeline"][0]["text"] = f"attempt 1 · stopped at step {grouped}"
    found["checkpoints"][0] |= {"step": 17_400, "path": path or found["checkpoints"][0]["path"]}
    return document.loads(json.dumps(found))


@pytest.mark.parametrize("form", ["csv", "md", "html"])
def test_a_file_is_searched_for_plain_digits(form: str) -> None:
    text = render(content(), form)
    assert "17400" in text
    assert not re.search("\\d\u202f\\d", text)


def test_a_path_is_never_changed() -> None:
    assert "saves/17\u202f400" in render(content("saves/17\u202f400"), "html")
