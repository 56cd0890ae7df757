"""Java's .properties syntax, which server.properties and meta.properties are written in.

Comments with # or !, keys that end at = : or a blank, lines continued by a backslash, backslash escapes with \\uXXXX.
Java reads such a file as ISO-8859-1; here UTF-8 is tried first, because that is what editors write today.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidelog.metadata.config import ConfigError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


class Property(NamedTuple):
    name: str
    value: str
    line: int
    """Where its first line stands, counted from 1."""


def decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> list[Property]:
    """Every property in order; a name may come again, and then the later one counts."""
    found = []
    for number, line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None, line
        found.append(Property(_unescape(match[1], number), _unescape(match[2], number), number))
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    result: list[tuple[int, str]] = []
    pending = ""
    start = 0
    continued = False
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", re.sub(r"(?:\r\n|\r|\n)\Z", "", text)), 1):
        line = raw.lstrip(_BLANK)
        continued = False
        if not pending:
            # Java asks this as long as nothing was read, after a lone backslash too.
            if not line or line[0] in "#!":
                continue
            start = number
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending, continued = pending[:-1], True
            continue
        result.append((start, pending))
        pending = ""
    # A backslash as the very last character is a property too, even if nothing stands before it.
    if pending or continued:
        result.append((start, pending))
    return result


def _unescape(text: str, line: int) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise ConfigError(f"line {line}: \\u needs four hexadecimal digits after it")
        return _ESCAPES.get(match[2], match[2])

    if "\\" not in text:
        return text
    plain = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.DOTALL)
    # Java writes a character beyond the basic plane as two escapes; join the halves.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
