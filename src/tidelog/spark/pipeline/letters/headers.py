"""What the headers of a letter say, and how they are told from the record's own.

A letter is the record as it was, with a block of headers behind its own ones. The block begins with `tidelog.letter`:
all from its last occurrence on is ours, all before it is the record's, which may be somebody else's letter itself.
Values are UTF-8 text. Pure names and values here; judging.py has the same for columns of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog.protocol.batch import Record

Header = tuple[str, bytes | None]

MARK: Final = "tidelog.letter"
VERSION: Final = "1"
# Kafka Connect's names, for tools that know them.
TOPIC: Final = "__connect.errors.topic"
PARTITION: Final = "__connect.errors.partition"
OFFSET: Final = "__connect.errors.offset"
CONNECTOR: Final = "__connect.errors.connector.name"
STAGE: Final = "__connect.errors.stage"
CLASS: Final = "__connect.errors.class.name"
EXCEPTION: Final = "__connect.errors.exception.class.name"
MESSAGE: Final = "__connect.errors.exception.message"
# Ours.
FLOW: Final = "tidelog.flow"
QUERY: Final = "tidelog.query"
"""The checkpoint that the letter belongs to: a flow that was begun anew judges all records anew."""
BATCH: Final = "tidelog.batch"
REASON: Final = "tidelog.reason"
ATTEMPT: Final = "tidelog.attempt"
NOT_BEFORE: Final = "tidelog.not.before"
AT: Final = "tidelog.at"
"""When it was decided; the record's own time is the letter's."""
REDRIVEN: Final = "tidelog.redriven"
"""How often it was sent back."""
TIMESTAMP: Final = "tidelog.timestamp"
TIMESTAMP_TYPE: Final = "tidelog.timestamp.type"
WAKE: Final = "tidelog.wake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A record of a topic of letters, read."""

    key: bytes | None
    value: bytes | None
    own: tuple[Header, ...]
    said: dict[str, str]

    def text(self, name: str) -> str:
        return self.said.get(name, "")

    def number(self, name: str) -> int | None:
        return number(self.said.get(name))

    @property
    def origin(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the record that it is."""
        partition, offset = self.number(PARTITION), self.number(OFFSET)
        return None if partition is None or offset is None else (self.text(TOPIC), partition, offset)

    def is_of(self, flow: str, query: str) -> bool:
        return self.text(FLOW) == flow and self.text(QUERY) == query


def letter_of(record: Record) -> Letter | None:
    """None for a record without the block."""
    headers = record.headers
    begins = max((index for index, (name, _) in enumerate(headers) if name == MARK), default=None)
    if begins is None:
        return None
    # Of two headers of one name the first counts, as in the columns of Spark.
    said = {name: (value or b"").decode(errors="replace") for name, value in reversed(headers[begins:])}
    return Letter(key=record.key, value=record.value, own=headers[:begins], said=said)


def block(said: Iterable[tuple[str, object]]) -> list[Header]:
    """What is None is left out."""
    named = [(MARK, VERSION), *said]
    return [(name, str(value).encode()) for name, value in named if value is not None]


def number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
