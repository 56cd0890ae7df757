"""lost-key, stale-key, revived-key: of a compacted topic, the last value of every key is what the last reads find.

Which of the older ones are still there is up to the cleaner. A tombstone may be there or not, the values before it may
not: they must not come back."""

from __future__ import annotations

from tests.chaos.checker.facts import Facts, Key
from tests.chaos.checker.report import Report
from tests.chaos.history import Assign, End, Op, Poll

Writes = dict[str, tuple[int, str, Op]]
"""By the record's key: offset, value and operation."""


def record_key(value: str) -> str:
    return value.partition("=")[0]


def is_tombstone(value: str) -> bool:
    return value.partition("=")[2].startswith("~")


def check(facts: Facts, report: Report) -> None:
    for key in facts.keys.values():
        if key.is_compacted and key.end is not None:
            _check(facts, report, key)


def _check(facts: Facts, report: Report, key: Key) -> None:
    written, unplaced = _written(facts, key)
    found = _last_read(facts, key)
    for name, (offset, value, op) in written.items():
        there = found.get(name)
        if there is None:
            if not is_tombstone(value) and not any(map(is_tombstone, unplaced.get(name, ()))):
                report.error("lost-key", f"{value} at {offset} is the last of {name} in {key.name}, it is gone", op)
        elif there[0] < offset:
            name_of_it = "revived-key" if is_tombstone(value) else "stale-key"
            report.error(name_of_it, f"{there[1]} at {there[0]} of {key.name} is the last, not {value} at {offset}", op)


def _written(facts: Facts, key: Key) -> tuple[Writes, dict[str, list[str]]]:
    """The last write of each key of which it is known where it stands; and those of which it is not, or which may not
    have happened."""
    written: Writes = {}
    unplaced: dict[str, list[str]] = {}
    for value, op in key.writer.items():
        name = record_key(value)
        offset = key.offset_of.get(value)
        if facts.happened(op) and offset is not None:
            if name not in written or written[name][0] < offset:
                written[name] = (offset, value, op)
        elif op.outcome != "fail":
            unplaced.setdefault(name, []).append(value)
    return written, unplaced


def _last_read(facts: Facts, key: Key) -> dict[str, tuple[int, str]]:
    """What the last reads found: by the one who read to the end, since it began at the beginning."""
    readers = {
        op.process
        for op in facts.history.ops
        for action in op.actions
        if isinstance(action, End) and action.key == key.name
    }
    found: dict[str, tuple[int, str]] = {}
    for op in facts.history.ops:
        if op.process not in readers:
            continue
        for action in op.actions:
            match action:
                case Assign() if key.name in action.keys:
                    found = {}
                case Poll() if action.key == key.name:
                    name = record_key(action.value)
                    if name not in found or found[name][0] < action.offset:
                        found[name] = (action.offset, action.value)
    return found
