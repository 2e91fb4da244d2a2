"""The reader of Go's templates does what Go does for the few things that our texts use, and refuses the rest."""

from __future__ import annotations

import math

import pytest
from tests.alerts.go_templates import TemplateError, render

DATA = {
    "labels": {"run": "llama 7b&c", "rank": "3", "node": "node-b"},
    "values": {"A": {"Value": 1_250_000.0, "Labels": {"run": "llama"}}, "B": {"Value": -1.0, "Labels": {}}},
}

GOOD = {
    "plain text, 100 %": "plain text, 100 %",
    "rank {{ $labels.rank }} on {{$labels.node}}": "rank 3 on node-b",
    "{{ $labels.run | urlquery }}": "llama+7b%26c",
    '{{ printf "%.0f" $values.A.Value }}': "1250000",
    '{{ $values.A.Value | printf "%.1f s" }}': "1250000.0 s",
    '{{ printf "%s and %q" $labels.rank $labels.node }}': '3 and "node-b"',
    '{{ printf "%.0f %%" 2.5 }}': "2 %",
    "{{ $values.A.Labels.run }}": "llama",
    "{{ if ge $values.B.Value 0.0 }}step{{ else }}none{{ end }}": "none",
    "{{ if ge $values.A.Value 0.0 }}step{{ else }}none{{ end }}": "step",
    '{{ if eq $labels.rank "0" }}a{{ else if eq $labels.rank "3" }}b{{ else }}c{{ end }}': "b",
    '{{ if and (eq $labels.rank "3") (not (eq $labels.node "x")) }}yes{{ end }}': "yes",
    '{{ if or (eq $labels.rank "1") (ne $labels.node "node-b") }}yes{{ end }}!': "!",
    "{{ with $labels.node }}{{ . }}{{ end }}": "node-b",
    "a {{- $labels.rank -}} b": "a3b",
    "{{ $who := $labels.rank }}{{ $who }}": "3",
    "{{ if $labels.run }}{{ if lt $values.B.Value 0.0 }}in{{ end }}{{ end }}": "in",
    "{{ `{x}` }}": "{x}",
}


@pytest.mark.parametrize("template", GOOD)
def test_a_template_of_ours_is_rendered_as_go_does(template: str) -> None:
    assert render(template, DATA) == GOOD[template]


BAD = {
    "{{ $labels.gpu }}": "there is no gpu",
    "{{ $values.Z.Value }}": "there is no Z",
    "{{ $value }}": r"\$value is not defined",
    "{{ $values.A.Value }}": "use printf",
    "{{ if ge $values.A.Value 0 }}x{{ end }}": "Go compares no",
    '{{ printf "%d" $values.A.Value }}': "does not take",
    '{{ printf "%s" }}': "does not take",
    '{{ printf "x" $labels.run }}': "leaves",
    "{{ humanize $values.A.Value }}": "humanize is no function",
    "{{ range $labels }}{{ end }}": "range .* is not used",
    "{{ if $labels.run }}x": "never closed",
    "x{{ end }}": "outside a block",
    "{{ else }}": "outside a block",
    "{{ $labels.run": "never closed",
    "$labels.run }}": "never closed",
    "{{ ($labels.run }}": "never closed",
    "{{ $labels.run $labels.node }}": "no function",
    "{{ ; }}": "cannot read",
    "{{ $labels.run | }}": "ends too early",
}


@pytest.mark.parametrize("template", BAD)
def test_what_go_or_this_reader_does_not_take_is_an_error(template: str) -> None:
    with pytest.raises(TemplateError, match=BAD[template]):
        render(template, DATA)


def test_a_number_that_is_none_is_printed_as_such() -> None:
    assert render('{{ printf "%.0f" $x }}', {"x": math.nan}) == "nan"
