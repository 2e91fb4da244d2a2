"""Run the small part of Go's text templates that the texts of our alerts use. Whatever else stands there is an error.

Stricter than Go on purpose: a label or a value that is missing, a number printed without ``printf``, a whole number
compared with a fraction are errors, where Go prints ``<no value>``, ``1e+06`` or breaks at night.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

ACTION = re.compile(r"\{\{(-\s)?(.*?)(\s-)?\}\}", re.DOTALL)
TOKEN = re.compile(r'\s*("(?:\\.|[^"\\])*"|`[^`]*`|-?\d+(?:\.\d+)?|\$\w*(?:\.\w+)*|(?:\.\w+)+|\.|:=|\w+|[()|])')


class TemplateError(ValueError):
    """A template says something that this reader, or Go, does not take."""


@dataclass
class Node:
    """A text, an action to print, or a block: ``if`` and ``with`` have branches of (words, body), else has no words."""

    kind: str
    text: str = ""
    branches: list[tuple[str, list[Node]]] = field(default_factory=list)


def render(template: str, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None) -> str:
    """Return the text. ``data``: variable (``labels``, ``values``) -> value."""
    known = {**FUNCTIONS, **(functions or {})}
    return Scope(dict(data), None, known).text(parse(template))


def parse(template: str) -> list[Node]:
    """Return the nodes of a template."""
    pieces = _pieces(template)
    nodes, left = _body(pieces, 0, ())
    if left != len(pieces):
        raise TemplateError(f"{{{{ {pieces[left][1]} }}}} closes nothing in {template!r}")
    return nodes


def _pieces(template: str) -> list[tuple[str, str]]:
    """Split into texts and actions, with the spaces taken away that ``{{-`` and ``-}}`` ask for."""
    pieces: list[tuple[str, str]] = []
    end, trim = 0, False
    for action in ACTION.finditer(template):
        text = template[end : action.start()]
        text = text.lstrip() if trim else text
        pieces.append(("text", text.rstrip() if action[1] else text))
        pieces.append(("action", action[2].strip()))
        end, trim = action.end(), bool(action[3])
    rest = template[end:]
    pieces.append(("text", rest.lstrip() if trim else rest))
    if stray := [text for kind, text in pieces if kind == "text" and ("{{" in text or "}}" in text)]:
        raise TemplateError(f"a brace is never closed: {stray[0]!r}")
    return [piece for piece in pieces if piece != ("text", "")]


def _body(pieces: Sequence[tuple[str, str]], at: int, closers: tuple[str, ...]) -> tuple[list[Node], int]:
    nodes: list[Node] = []
    while at < len(pieces):
        kind, text = pieces[at]
        word = text.split(maxsplit=1)[0] if kind == "action" and text else ""
        if word in ("end", "else"):
            if not closers:
                raise TemplateError(f"{{{{ {text} }}}} stands outside a block")
            return nodes, at
        if word in ("if", "with"):
            node, at = _block(pieces, at, word)
        elif word in ("range", "define", "template", "block"):
            raise TemplateError(f"{{{{ {word} }}}} is not used in our texts")
        else:
            node, at = Node(kind, text), at + 1
        nodes.append(node)
    if closers:
        raise TemplateError("a block is never closed")
    return nodes, at


def _block(pieces: Sequence[tuple[str, str]], at: int, word: str) -> tuple[Node, int]:
    node = Node(word)
    condition = pieces[at][1].removeprefix(word).strip()
    while True:
        body, at = _body(pieces, at + 1, ("end", "else"))
        node.branches.append((condition, body))
        text = pieces[at][1]
        if text == "end":
            return node, at + 1
        condition = text.removeprefix("else").strip().removeprefix(word).strip()


@dataclass
class Scope:
    """The variables, what ``.`` stands for, and the functions of one part of a template."""

    variables: dict[str, Any]
    dot: Any
    functions: Mapping[str, Callable[..., Any]]

    def text(self, nodes: Sequence[Node]) -> str:
        return "".join(self._node(node) for node in nodes)

    def _node(self, node: Node) -> str:
        if node.kind == "text":
            return node.text
        if node.kind == "action":
            return self._action(node.text)
        for condition, body in node.branches:
            value = self.value(condition) if condition else True
            if _true(value):
                dot = value if node.kind == "with" and condition else self.dot
                return Scope(dict(self.variables), dot, self.functions).text(body)
        return ""

    def _action(self, words: str) -> str:
        if assigned := re.match(r"\$(\w+)\s*:?=\s*(.*)", words, re.DOTALL):
            self.variables[assigned[1]] = self.value(assigned[2])
            return ""
        return printed(self.value(words))

    def value(self, words: str) -> Any:
        """Return the value of a pipeline."""
        tokens = _tokens(words)
        value, at = self._pipeline(tokens, 0)
        if at != len(tokens):
            raise TemplateError(f"cannot read {' '.join(tokens[at:])!r} in {{{{ {words} }}}}")
        return value

    def _pipeline(self, tokens: Sequence[str], at: int) -> tuple[Any, int]:
        value, at = self._command(tokens, at, ())
        while at < len(tokens) and tokens[at] == "|":
            value, at = self._command(tokens, at + 1, (value,))
        return value, at

    def _command(self, tokens: Sequence[str], at: int, piped: tuple[Any, ...]) -> tuple[Any, int]:
        if at >= len(tokens):
            raise TemplateError("an expression ends too early")
        name, operands = tokens[at], []
        function = re.fullmatch(r"[A-Za-z]\w*", name) and name not in ("true", "false")
        at += 1 if function else 0
        while at < len(tokens) and tokens[at] not in ("|", ")"):
            operand, at = self._operand(tokens, at)
            operands.append(operand)
        if function:
            return self._call(name, [*operands, *piped]), at
        if len(operands) != 1 or piped:
            raise TemplateError(f"{name} is no function")
        return operands[0], at

    def _call(self, name: str, operands: list[Any]) -> Any:
        if name not in self.functions:
            raise TemplateError(f"{name} is no function that our texts use")
        return self.functions[name](*operands)

    def _operand(self, tokens: Sequence[str], at: int) -> tuple[Any, int]:
        token = tokens[at]
        if token == "(":
            value, at = self._pipeline(tokens, at + 1)
            if at >= len(tokens) or tokens[at] != ")":
                raise TemplateError("a bracket is never closed")
            return value, at + 1
        return self._literal(token), at + 1

    def _literal(self, token: str) -> Any:
        if token[0] in '"`':
            return token[1:-1] if token[0] == "`" else json.loads(token)
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        if re.fullmatch(r"-?\d+\.\d+", token):
            return float(token)
        if token in ("true", "false"):
            return token == "true"
        return self._path(token)

    def _path(self, token: str) -> Any:
        head, *keys = token.split(".")
        value: Any = self.dot
        if head:
            if head.removeprefix("$") not in self.variables:
                raise TemplateError(f"{head} is not defined")
            value = self.variables[head.removeprefix("$")]
        for key in filter(None, keys):
            if not isinstance(value, Mapping) or key not in value:
                raise TemplateError(f"{token}: there is no {key} in {value!r}")
            value = value[key]
        return value


def _tokens(words: str) -> list[str]:
    tokens, at = [], 0
    while at < len(words.rstrip()):
        found = TOKEN.match(words, at)
        if found is None:
            raise TemplateError(f"cannot read {words[at:]!r}")
        tokens.append(found[1])
        at = found.end()
    return tokens


def _true(value: Any) -> bool:
    return bool(value)


def printed(value: Any) -> str:
    """Return what an action prints."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value)
    raise TemplateError(f"{value!r} is printed as it is: use printf")


def printf(pattern: str, *values: Any) -> str:
    """Format as Go does. Known: ``%s %q`` of a text, ``%d`` of a whole number, ``%f`` of a fraction, ``%%``."""
    left = list(values)

    def one(verb: re.Match[str]) -> str:
        if verb[0] == "%%":
            return "%"
        if not left or not isinstance(left[0], {"s": str, "q": str, "d": int, "f": float}.get(verb[2], ())):
            raise TemplateError(f"printf {pattern!r} does not take {values!r}")
        value = left.pop(0)
        return json.dumps(value, ensure_ascii=False) if verb[2] == "q" else verb[0] % value

    text = re.sub(r"%(?:%|([-+#0 ]*\d*(?:\.\d+)?)([a-zA-Z]))", one, pattern)
    if left:
        raise TemplateError(f"printf {pattern!r} leaves {left!r} over")
    return text


def _compare(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(left: Any, right: Any) -> bool:
        if type(left) is not type(right):
            raise TemplateError(f"Go compares no {left!r} with {right!r}")
        return test(left, right)

    return compared


def _urlquery(text: Any) -> str:
    return quote_plus(printed(text), safe="")


def _or(*values: Any) -> Any:
    return next((value for value in values if _true(value)), values[-1])


def _and(*values: Any) -> Any:
    return next((value for value in values if not _true(value)), values[-1])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "printf": printf,
    "urlquery": _urlquery,
    "not": lambda value: not _true(value),
    "and": _and,
    "or": _or,
    "eq": _compare(lambda left, right: left == right),
    "ne": _compare(lambda left, right: left != right),
    "lt": _compare(lambda left, right: left < right),
    "le": _compare(lambda left, right: left <= right),
    "gt": _compare(lambda left, right: left > right),
    "ge": _compare(lambda left, right: left >= right),
}  # fmt: skip
