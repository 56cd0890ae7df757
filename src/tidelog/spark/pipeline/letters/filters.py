"""Which dead letters are meant: by reason, time, key, and a few comparisons in words that look like SQL.

    topic = 'orders' AND offset >= 100 AND message LIKE '%timeout%'

Comparisons are joined by AND. There is no OR: run the command twice, each letter is sent once all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from tidelog.kernel.errors import TidelogError
from tidelog.spark.pipeline.faults import allowed
from tidelog.spark.pipeline.letters import headers as H
from tidelog.spark.pipeline.letters.headers import Letter

NUMBERS: Final[Mapping[str, str]] = {
    "partition": H.PARTITION,
    "offset": H.OFFSET,
    "attempt": H.ATTEMPT,
    "redriven": H.REDRIVEN,
    "batch": H.BATCH,
    "at": H.AT,
    "timestamp": H.TIMESTAMP,
}
TEXTS: Final[Mapping[str, str]] = {"topic": H.TOPIC, "reason": H.REASON, "message": H.MESSAGE}
FIELDS: Final = (*TEXTS, *NUMBERS, "key", "value", "header.NAME")
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": eq,
    "!=": ne,
    "<>": ne,
    "<=": le,
    ">=": ge,
    "<": lt,
    ">": gt,
}
_ONE: Final = re.compile(
    r"\s*(?P<field>header\.[^\s=<>!]+|[A-Za-z_]+)\s*(?P<operator><=|>=|<>|!=|=|<|>|(?i:LIKE)\b)\s*"
    r"(?P<value>'(?:[^']|'')*'|-?[0-9]+)\s*"
)
_AND: Final = re.compile(r"AND\b", re.IGNORECASE)


class FilterError(TidelogError):
    """A filter that says nothing we understand; the message says what it may say."""


Test = Callable[[Letter], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    reason: str | None = None
    since_ms: int | None = None
    key: str | None = None
    where: str | None = None
    _tests: tuple[Test, ...] = field(default=(), repr=False)

    @staticmethod
    def of(
        *, reason: str | None = None, since_ms: int | None = None, key: str | None = None, where: str | None = None
    ) -> Wanted:
        tests = () if where is None else parse(where)
        return Wanted(reason=reason, since_ms=since_ms, key=key, where=where, _tests=tests)

    def takes(self, letter: Letter) -> bool:
        """`since` is when it died, not the time of the record that it was."""
        return (
            (self.reason is None or letter.text(H.REASON) == self.reason)
            and (self.since_ms is None or (letter.number(H.AT) or 0) >= self.since_ms)
            and (self.key is None or letter.key == self.key.encode())
            and all(test(letter) for test in self._tests)
        )

    def as_json(self) -> dict[str, Any]:
        named = {"reason": self.reason, "since_ms": self.since_ms, "key": self.key, "where": self.where}
        return {name: value for name, value in named.items() if value is not None}


def parse(text: str) -> tuple[Test, ...]:
    tests: list[Test] = []
    position = 0
    while True:
        found = _ONE.match(text, position)
        if found is None:
            raise FilterError(
                f"cannot read {text[position:].strip()!r}; write FIELD OPERATOR VALUE, such as offset >= 100 AND "
                f"message LIKE '%timeout%'; fields: {', '.join(FIELDS)}"
            )
        tests.append(_test(found["field"], found["operator"].upper(), found["value"]))
        position = found.end()
        if position == len(text):
            return tuple(tests)
        joined = _AND.match(text, position)
        if joined is None:
            raise FilterError(f"expected AND before {text[position:].strip()!r}; there is nothing else between two")
        position = joined.end()


def _test(name: str, operator: str, literal: str) -> Test:
    quoted = literal.startswith("'")
    text = literal[1:-1].replace("''", "'") if quoted else literal
    if name in NUMBERS:
        if quoted or operator == "LIKE":
            raise FilterError(f"{name} is a number: compare it with one, by {', '.join(_OPERATORS)}")
        compare, number, header = _OPERATORS[operator], int(text), NUMBERS[name]
        return lambda letter: (found := letter.number(header)) is not None and compare(found, number)
    read = _reader(name)
    if operator == "LIKE":
        like = re.compile("".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in text), re.DOTALL)
        return lambda letter: (found := read(letter)) is not None and like.fullmatch(found) is not None
    compare = _OPERATORS[operator]
    return lambda letter: (found := read(letter)) is not None and compare(found, text)


def _reader(name: str) -> Callable[[Letter], str | None]:
    if name in TEXTS:
        return lambda letter: letter.text(TEXTS[name])
    if name in ("key", "value"):
        return lambda letter: _decoded(letter.key if name == "key" else letter.value)
    if name.startswith("header."):
        wanted = name.removeprefix("header.")
        return lambda letter: next((_decoded(value) for key, value in letter.own if key == wanted), None)
    raise FilterError(f"there is no field {name!r}; {allowed(name, FIELDS)}")


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
