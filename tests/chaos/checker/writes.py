"""lost-write, unseen, torn-transaction: what was acknowledged is there. phantom: what is there was sent."""

from __future__ import annotations

from tests.chaos.checker.facts import Facts, Key
from tests.chaos.checker.report import Report
from tests.chaos.history import Op, Send


def check(facts: Facts, report: Report) -> None:
    for op in facts.history.ops:
        if facts.happened(op):
            _check_op(facts, report, op)
    for key in facts.keys.values():
        for value in key.seen - key.writer.keys():
            report.error("phantom", f"{value} was read from {key.name}, nobody sent it")


def _check_op(facts: Facts, report: Report, op: Op) -> None:
    seen = missing = 0
    for action in op.actions:
        if not isinstance(action, Send):
            continue
        key = facts.keys[action.key]
        if key.is_compacted:
            continue
        if action.value in key.seen:
            seen += 1
        elif name := _missing(key, key.find(action)):
            missing += 1
            report.error(name, f"{action.value}, at {action.offset} of {key.name}, is not there", op)
    if seen and missing and op.transactional:
        report.error("torn-transaction", f"{seen} of its writes are there, {missing} are not", op)


def _missing(key: Key, offset: int | None) -> str | None:
    if offset is not None and (offset < key.passed or (key.end is not None and offset < key.end)):
        return "lost-write"
    return "unseen" if key.end is not None else None
