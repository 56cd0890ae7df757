"""The tokens of .proto text, with their lines for error messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidelog.spark.payload.errors import SchemaError

# A comment before a slash is a symbol, a dotted number before a name and before the dot itself.
_PATTERN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?f?|\d+[eE][+-]?\d+f?)
    |(?P<int>0[xX][0-9a-fA-F]+|\d+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<symbol>[{}()\[\]<>=;,.:/+-])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    found = []
    position, line = 0, 1
    while position < len(text):
        match = _PATTERN.match(text, position)
        if match is None:
            raise SchemaError(f".proto line {line}: {text[position]!r} is not understood")
        kind = str(match.lastgroup)
        if kind != "space":
            found.append(Token(kind, match.group(), line))
        line += match.group().count("\n")
        position = match.end()
    found.append(Token("end", "the end of the text", line))
    return found


def unquoted(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    code = match.group(1)
    if code[0] in "xuU":
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ESCAPES.get(code, code)
