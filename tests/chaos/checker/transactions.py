"""G1a, dirty-read, precommitted-read: readers of committed data see nothing of one that is open or aborted."""

from __future__ import annotations

from tests.chaos.checker.facts import Facts
from tests.chaos.checker.report import Report
from tests.chaos.history import Op, Poll


def check(facts: Facts, report: Report) -> None:
    for op in facts.history.ops:
        if op.uncommitted:
            continue
        for action in op.actions:
            if isinstance(action, Poll):
                _check_poll(facts, report, op, action)


def _check_poll(facts: Facts, report: Report, op: Op, poll: Poll) -> None:
    writer = facts.keys[poll.key].writer.get(poll.value)
    if writer is None:
        return
    if writer is op:
        if op.transactional:
            report.error("precommitted-read", f"it read its own {poll.value} at {poll.offset} of {poll.key}", op)
    elif writer.outcome == "fail":
        report.error("G1a", f"{poll.value} at {poll.offset} of {poll.key} was read, it had failed", writer, op)
    elif writer.transactional and (writer.decided is None or (op.end is not None and op.end < writer.decided)):
        text = f"{poll.value} at {poll.offset} of {poll.key} was read before its commit was asked for"
        report.error("dirty-read", text, writer, op)
