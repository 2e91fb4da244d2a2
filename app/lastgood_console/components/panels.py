"""Draw the first screenful of an incident: crumb, verdict, headline, the insides of the panels, the reasons, DO."""

from __future__ import annotations

from lastgood.state import Incident
from lastgood.wording import headline, nature_phrase, scope_phrase, status_word
from lastgood_console.characters import escape
from lastgood_console.components.decision import Advice, Panel, reasons, standing
from lastgood_console.components.symbols import STATUS_SYMBOL, colour_class, symbol, trust_mark


def crumb_html(incident: Incident) -> str:
    """Return ``run › incident``."""
    return f'<div class="lg-caption">{escape(incident.run)} › incident <b>{escape(incident.id)}</b></div>'


def standing_html(incident: Incident, now: str, fresh: str) -> str:
    """Return how the incident stands and how old the data is. ``fresh`` is HTML already."""
    words = " · ".join([*(escape(words) for words in standing(incident, now)), fresh])
    return f'<div class="lg-caption lg-right">{words}</div>'


def verdict_html(incident: Incident) -> str:
    """Return the verdict word with its scope, and the headline."""
    name = STATUS_SYMBOL[incident.status]
    scope = scope_phrase(incident)
    rest = f"· confidence {incident.confidence} · {nature_phrase(incident)}"
    word = f'<strong class="{colour_class(name)}">{status_word(incident)}</strong>'
    scope_html = f'<span class="lg-scope">{escape(scope)}</span>' if scope else ""
    return (
        f'<div class="lg-verdict">{symbol(name)}{word}{scope_html}<span>{escape(rest)}</span></div>'
        f'<h1 class="lg-headline">{escape(headline(incident))}</h1>'
    )


def panel_html(title: str, panel: Panel) -> str:
    """Return the inside of a decision panel, without its command."""
    mark = trust_mark(panel.trust) if panel.trust else ""
    lines = "".join(f'<div class="lg-note">{escape(line)}</div>' for line in panel.lines if line)
    return (
        f'<div class="lg-fixed">{escape(title)}</div>'
        f'<div class="lg-number"><span>{escape(panel.number)}</span>{mark}</div>{lines}'
    )


def reasons_html(incident: Incident) -> str:
    """Return WHY, AGAINST and UNKNOWN."""
    rows = []
    for word, found in reasons(incident).items():
        lines = "".join(f"<div>{escape(line)}</div>" for line in found)
        rows.append(f'<dt class="lg-fixed">{word}</dt><dd>{lines}</dd>')
    return f'<dl class="lg-reasons">{"".join(rows)}</dl>'


def advice_html(number: int, advice: Advice) -> str:
    """Return one line of DO, without its command."""
    done = ""
    if advice.done:
        done = f'<span class="lg-word lg-c-trusted">{symbol("trusted")}<span>{escape(advice.done)}</span></span>'
    label = '<b class="lg-fixed">DO</b>' if number == 1 else "<b></b>"
    return f'<div class="lg-do">{label}<i>{number}</i><span>{escape(advice.words)}</span>{done}</div>'
