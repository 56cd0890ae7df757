"""What clients did and what they were told, as a file of JSON lines that can be checked again. It owns the shape of
operations and knows no client, no broker and no rule.

The first line is the `Meta`. Every other line is an operation. A client writes an operation before it begins (outcome
`unknown`) and once more whenever it knows more of it: the last line of a (process, number) counts. So one that was
killed has left what it was about to do.

A `process` is one life of one client. Values are unique per key; a key is a partition, `topic/number`. Times are
nanoseconds of the machine's monotonic clock, which all processes of a machine share, Java's `nanoTime` too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.json import Decoder, Encoder

Outcome: TypeAlias = Literal["ok", "fail", "unknown"]


class Send(Struct, array_like=True, tag="send", gc=False):
    key: str
    value: str
    offset: int | None = None
    """As the producer was told, None if it was not."""


class Poll(Struct, array_like=True, tag="poll", gc=False):
    key: str
    value: str
    offset: int


class Assign(Struct, array_like=True, tag="assign", gc=False):
    """The process reads these from here on, wherever it stood before."""

    keys: tuple[str, ...]


class Subscribe(Struct, array_like=True, tag="subscribe", gc=False):
    """The process is a member of the group: it may be moved between polls."""

    group: str


class Own(Struct, array_like=True, tag="own", gc=False):
    """The group gave it these, in addition to what it had."""

    group: str
    keys: tuple[str, ...]
    instance: str = ""
    """Of a static member: whoever joins under its name takes over at once, the other one need not have heard of it."""


class Disown(Struct, array_like=True, tag="disown", gc=False):
    """It has given them up, or heard that they are lost; or it was stopped, and what it believes no longer counts. No
    keys: all of the group."""

    group: str
    keys: tuple[str, ...]


class Commit(Struct, array_like=True, tag="commit", gc=False):
    group: str
    key: str
    offset: int


class Committed(Struct, array_like=True, tag="committed", gc=False):
    """The group's position as a client was told it."""

    group: str
    key: str
    offset: int | None


class End(Struct, array_like=True, tag="end", gc=False):
    """The last reads: all of the key was read, up to this offset, after everything was healed."""

    key: str
    offset: int


class Total(Struct, array_like=True, tag="total", gc=False):
    """All accounts of a bank as one reading of its partition, from beginning to end, has found them."""

    key: str
    accounts: int
    total: int


Action: TypeAlias = Send | Poll | Assign | Subscribe | Own | Disown | Commit | Committed | End | Total


class Op(Struct, kw_only=True, omit_defaults=True):
    process: str
    number: int
    outcome: Outcome = "unknown"
    """fail: it certainly did not happen (an aborted transaction). A time-out is unknown."""
    start: int
    end: int | None = None
    decided: int | None = None
    """When commit or abort was asked for; only transactions have it."""
    transactional: bool = False
    uncommitted: bool = False
    """Its polls are read_uncommitted."""
    actions: list[Action] = field(default_factory=list)
    note: str = ""


class Copy(Struct, kw_only=True, frozen=True):
    """What is in the topic `source` is copied to `target`, value by value, partition to same partition."""

    source: str
    target: str
    group: str


class Bank(Struct, kw_only=True, frozen=True):
    """A topic whose records are balances by account. What goes from one account comes to another."""

    topic: str
    accounts: int
    total: int


class Meta(Struct, kw_only=True):
    version: int = 1
    workload: str = ""
    seed: int = 0
    broker: str = ""
    idempotent: bool = True
    """False: duplicates and order of sends are reported, they are no errors."""
    copies: list[Copy] = field(default_factory=list)
    compacted: list[str] = field(default_factory=list)
    """Topics of which the last value of each record's key must stay, and no more. Values there are `KEY=...`; of a
    tombstone, `KEY=~...`."""
    banks: list[Bank] = field(default_factory=list)


class History(Struct):
    meta: Meta
    ops: list[Op]
    """By start."""


_ENCODER = Encoder()
_META = Decoder(Meta)
_OP = Decoder(Op)


def now() -> int:
    return time.monotonic_ns()


class Recorder:
    """Writes the operations of one process, each line with one call: a kill takes none that was written."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        self._number = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def begin(self, *actions: Action, transactional: bool = False) -> Op:
        self._number += 1
        op = Op(
            process=self.process,
            number=self._number,
            start=now(),
            transactional=transactional,
            actions=list(actions),
        )
        self.write(op)
        return op

    def decide(self, op: Op) -> None:
        op.decided = now()
        self.write(op)

    def end(self, op: Op, outcome: Outcome, note: str = "") -> None:
        op.end = now()
        op.outcome = outcome
        op.note = note
        self.write(op)

    def note(self, *actions: Action) -> None:
        """An operation that takes no time."""
        self.end(self.begin(*actions), "ok")

    def write(self, op: Op) -> None:
        os.write(self._file, _ENCODER.encode(op) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def merge(meta: Meta, parts: Iterable[Path]) -> History:
    """One history of what all processes wrote. A line that a kill cut in two is left out."""
    found: dict[tuple[str, int], Op] = {}
    for part in parts:
        for op in _lines(part):
            found[op.process, op.number] = op
    return History(meta, sorted(found.values(), key=lambda op: op.start))


def _lines(path: Path) -> Iterator[Op]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _OP.decode(line)


def save(history: History, path: Path) -> None:
    with path.open("wb") as file:
        file.write(_ENCODER.encode(history.meta) + b"\n")
        file.writelines(_ENCODER.encode(op) + b"\n" for op in history.ops)


def load(path: Path) -> History:
    with path.open("rb") as file:
        meta = _META.decode(file.readline())
        found: dict[tuple[str, int], Op] = {}
        for line in file:
            op = _OP.decode(line)
            found[op.process, op.number] = op
    return History(meta, sorted(found.values(), key=lambda op: op.start))


def of(ops: Sequence[Op], **meta: object) -> History:
    """A history made by hand."""
    return History(Meta(**meta), sorted(ops, key=lambda op: op.start))  # type: ignore[arg-type]
