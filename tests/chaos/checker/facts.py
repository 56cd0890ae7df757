"""What a history says of each key, gathered in one pass: which value stands where, who wrote it, who saw it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tests.chaos.checker.report import Report
from tests.chaos.history import End, History, Op, Poll, Send, Subscribe


class Key:
    """One partition."""

    __slots__ = ("_existing", "end", "is_compacted", "name", "offset_of", "passed", "seen", "value_at", "writer")

    def __init__(self, name: str, is_compacted: bool = False) -> None:
        self.name = name
        self.is_compacted = is_compacted
        """Values that have a successor may be gone: compaction.py judges what is left."""
        self.value_at: dict[int, str] = {}
        self.offset_of: dict[str, int] = {}
        self.writer: dict[str, Op] = {}
        self.seen: set[str] = set()
        """By readers of committed data."""
        self.passed = -1
        """The highest offset that such a reader got."""
        self.end: int | None = None
        """Where the last reads ended, None if there were none."""
        self._existing: list[int] = []

    def close(self, committed: set[int]) -> None:
        """Everything is known: which offsets hold data that a reader must not jump over."""
        if self.is_compacted:
            return
        found = {offset for offset, value in self.value_at.items() if value in self.seen}
        for value, op in self.writer.items():
            if id(op) in committed and value in self.offset_of:
                found.add(self.offset_of[value])
        self._existing = sorted(found)

    def existing_between(self, after: int, before: int) -> list[int]:
        if before <= after + 1:
            return []
        low = bisect_right(self._existing, after)
        high = bisect_right(self._existing, before - 1, low)
        return self._existing[low:high]

    def existing(self) -> list[int]:
        return self._existing

    def find(self, action: Send) -> int | None:
        return action.offset if action.offset is not None else self.offset_of.get(action.value)


class Facts:
    def __init__(self, history: History, report: Report) -> None:
        self.history = history
        self.keys: dict[str, Key] = {}
        self.groups: dict[str, str] = {}
        """The group of a process."""
        self.committed: set[int] = set()
        """The ids of operations that happened: they were answered so, or somebody saw of an unknown one."""
        self._report = report
        polls = sends = 0
        for op in history.ops:
            for action in op.actions:
                match action:
                    case Send():
                        sends += 1
                        self._sent(op, action)
                    case Poll():
                        polls += 1
                        self._polled(op, action)
                    case End():
                        key = self.key(action.key)
                        key.end = max(key.end or 0, action.offset)
                    case Subscribe():
                        self.groups[op.process] = action.group
        report.figures = {"operations": len(history.ops), "sends": sends, "polls": polls, "keys": len(self.keys)}
        self._decide()

    def key(self, name: str) -> Key:
        found = self.keys.get(name)
        if found is None:
            compacted = self.history.meta.compacted
            found = self.keys[name] = Key(name, bool(compacted) and name.rpartition("/")[0] in compacted)
        return found

    def _sent(self, op: Op, send: Send) -> None:
        key = self.key(send.key)
        key.writer[send.value] = op
        if send.offset is not None:
            self._stands(op, key, send.value, send.offset)

    def _polled(self, op: Op, poll: Poll) -> None:
        key = self.key(poll.key)
        self._stands(op, key, poll.value, poll.offset)
        if not op.uncommitted:
            key.seen.add(poll.value)
            if poll.offset > key.passed:
                key.passed = poll.offset

    def _stands(self, op: Op, key: Key, value: str, offset: int) -> None:
        known = key.value_at.setdefault(offset, value)
        if known != value:
            text = f"offset {offset} of {key.name} was {known} and {value}"
            self._report.error("inconsistent-offsets", text, op)
        place = key.offset_of.setdefault(value, offset)
        if place != offset:
            if self.history.meta.idempotent:
                text = f"{value} stands at {place} and {offset} of {key.name}"
                self._report.error("duplicate", text, *self._writers(key, value))
            else:
                self._report.notice("duplicate")

    @staticmethod
    def _writers(key: Key, value: str) -> Iterator[Op]:
        if value in key.writer:
            yield key.writer[value]

    def _decide(self) -> None:
        for op in self.history.ops:
            sends = [action for action in op.actions if isinstance(action, Send)]
            if op.outcome == "ok" or (
                op.outcome == "unknown" and any(send.value in self.keys[send.key].seen for send in sends)
            ):
                self.committed.add(id(op))
        for key in self.keys.values():
            key.close(self.committed)

    def happened(self, op: Op) -> bool:
        return id(op) in self.committed
