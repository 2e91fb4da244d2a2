"""Hold the sentences of the fold to one way of writing a step: as pages write it, in groups of three."""

from __future__ import annotations

import re

from tests.exporter.histories import History


def test_every_reason_groups_its_steps() -> None:
    history = History().start().save(0).audit(1, phase="first").save(17_400).audit(17_400).save(17_550)
    history.find("replay", 17_700)
    state = history.state()
    said = [
        *(c.reason for c in state.checkpoints), state.last_good.reason,
        *(text for i in state.incidents for text in (*i.reasons_for, *i.unknown)),
    ]  # fmt: skip
    assert any("17\u202f400" in text for text in said)
    assert any("17\u202f700" in text for text in said)
    assert [text for text in said if re.search(r"\d{5}", text)] == []
