"""poll-skip, nonmonotonic-poll, nonmonotonic-send and int-send-skip: the order in which one process reads and writes.

`int-`: within one operation. Sends of one process go out in the order in which they were begun."""

from __future__ import annotations

from tests.chaos.checker.facts import Facts
from tests.chaos.checker.report import Report
from tests.chaos.history import Assign, Op, Own, Poll, Send, Subscribe


def check(facts: Facts, report: Report) -> None:
    by_process: dict[str, list[Op]] = {}
    for op in facts.history.ops:
        by_process.setdefault(op.process, []).append(op)
    for ops in by_process.values():
        _Reader(facts, report).follow(ops)
        _Writer(facts, report).follow(ops)


class _Reader:
    def __init__(self, facts: Facts, report: Report) -> None:
        self._facts = facts
        self._report = report
        self._at: dict[str, tuple[int, Op]] = {}
        self._subscribed = False

    def follow(self, ops: list[Op]) -> None:
        for op in ops:
            for action in op.actions:
                match action:
                    case Assign():
                        for key in action.keys:
                            self._at.pop(key, None)
                    case Subscribe():
                        self._subscribed = True
                    case Own():
                        for key in action.keys:
                            self._at.pop(key, None)
                    case Poll():
                        self._polled(op, action)

    def _polled(self, op: Op, poll: Poll) -> None:
        last = self._at.get(poll.key)
        self._at[poll.key] = (poll.offset, op)
        if last is None or poll.offset == last[0] + 1:
            return
        before, earlier = last
        inside = earlier is op
        if poll.offset <= before:
            self._tell("nonmonotonic-poll", inside, f"after {before} of {poll.key} came {poll.offset}", earlier, op)
        elif skipped := self._facts.keys[poll.key].existing_between(before, poll.offset):
            text = f"{poll.key} from {before} to {poll.offset}, over {len(skipped)} records, {skipped[0]} the first"
            self._tell("poll-skip", inside, text, earlier, op)

    def _tell(self, name: str, inside: bool, text: str, earlier: Op, op: Op) -> None:
        if inside:
            self._report.error(f"int-{name}", text, op)
        elif self._subscribed:
            self._report.notice(name)
        else:
            self._report.error(name, text, earlier, op)


class _Writer:
    def __init__(self, facts: Facts, report: Report) -> None:
        self._facts = facts
        self._report = report
        self._at: dict[str, tuple[int, Op]] = {}

    def follow(self, ops: list[Op]) -> None:
        for op in ops:
            for action in op.actions:
                if isinstance(action, Send):
                    self._sent(op, action)

    def _sent(self, op: Op, send: Send) -> None:
        key = self._facts.keys[send.key]
        offset = key.find(send)
        if offset is None:
            return
        last = self._at.get(send.key)
        self._at[send.key] = (offset, op)
        if last is None or offset == last[0] + 1:
            return
        before, earlier = last
        if offset > before:
            if earlier is op and key.existing_between(before, offset):
                self._report.notice("int-send-skip")
        elif not self._facts.history.meta.idempotent:
            self._report.notice("nonmonotonic-send")
        elif earlier is op:
            text = f"{send.value} stands at {offset} of {send.key}, one sent before it at {before}"
            self._report.error("int-nonmonotonic-send", text, op)
        else:
            text = f"{send.value} stands at {offset} of {send.key}, one sent before it at {before}"
            self._report.error("nonmonotonic-send", text, earlier, op)
