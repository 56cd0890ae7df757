"""Kafka's text checkpoints: a version line, a count line, then one line an entry. Reading trusts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.log.errors import CorruptFileError

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

_VERSION: Final = "0"


def encode_lines(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(entries)), *entries)).encode()


def decode_lines(data: bytes, name: str) -> list[list[str]]:
    """The fields of every entry; an empty file has none."""
    if not data:
        return []
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise CorruptFileError(f"{name} is not text") from None
    if not text.endswith("\n"):
        raise CorruptFileError(f"{name} does not end with a whole line")
    lines = text[:-1].split("\n")
    if lines[0] != _VERSION:
        raise CorruptFileError(f"{name} has version {lines[0]!r}, expected {_VERSION}")
    if len(lines) < 2 or lines[1] != str(len(lines) - 2):
        raise CorruptFileError(f"{name} does not hold the number of entries that it says")
    return [line.split(" ") for line in lines[2:]]


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    return encode_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def decode_offsets(data: bytes, name: str) -> dict[tuple[str, int], int]:
    offsets: dict[tuple[str, int], int] = {}
    for fields in decode_lines(data, name):
        try:
            topic, partition, offset = fields
            offsets[topic, natural(partition)] = natural(offset)
        except ValueError:
            raise CorruptFileError(f"{name} has a malformed line: {' '.join(fields)!r}") from None
    return offsets


def natural(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)
