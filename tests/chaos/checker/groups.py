"""Groups: who owned what, and positions. double-owner, zombie-commit, commit-regressed, lost-commit, aborted-commit,
phantom-commit, commit-skip; and how often each value was polled, which is reported only.

A commit that began when another member had already been given the partition must be refused. What was committed is
not taken back: neither a later commit nor a later question may find less."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.chaos.checker.facts import Facts
from tests.chaos.checker.report import Report
from tests.chaos.history import Commit, Committed, Disown, Op, Own, Poll

Place = tuple[str, str]
"""Group and key."""


def check(facts: Facts, report: Report) -> None:
    _Owners(report).follow(facts.history.ops)
    positions = _positions(facts)
    for place, position in positions.items():
        position.check(report, place)
    _skipped(facts, report, positions)
    counts: Counter[tuple[str, str]] = Counter()
    for op in facts.history.ops:
        if op.process in facts.groups:
            counts.update((action.key, action.value) for action in op.actions if isinstance(action, Poll))
    report.consume_counts = Counter(counts.values())


class _Owners:
    """One pass by time. Events of one moment: giving up comes first."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._owners: dict[Place, dict[str, tuple[Op, str]]] = {}
        self._newest: dict[Place, tuple[str, int]] = {}

    def follow(self, ops: list[Op]) -> None:
        for op in ops:
            for action in op.actions:
                match action:
                    case Own():
                        self._own(op, action)
                    case Disown():
                        self._disown(op, action)
                    case Commit():
                        self._commit(op, action)

    def _own(self, op: Op, own: Own) -> None:
        for key in own.keys:
            owners = self._owners.setdefault((own.group, key), {})
            for process, (earlier, instance) in list(owners.items()):
                if instance and instance == own.instance:
                    del owners[process]
                elif process != op.process:
                    text = f"{key} of group {own.group} was given to {op.process} while {process} had it"
                    self._report.error("double-owner", text, earlier, op)
            owners[op.process] = (op, own.instance)
            self._newest[own.group, key] = (op.process, op.end if op.end is not None else op.start)

    def _disown(self, op: Op, disown: Disown) -> None:
        places = [(disown.group, key) for key in disown.keys] or self._owners.keys()
        for place in places:
            if place[0] == disown.group:
                self._owners.get(place, {}).pop(op.process, None)

    def _commit(self, op: Op, commit: Commit) -> None:
        newest = self._newest.get((commit.group, commit.key))
        if newest is None or op.outcome != "ok" or newest[0] == op.process:
            return
        # A transaction asks for its commit of offsets after it began: only what it decided later is surely late.
        asked = op.start
        if newest[1] < asked:
            text = f"{op.process} committed {commit.offset} of {commit.key} after it was given to {newest[0]}"
            self._report.error("zombie-commit", text, op)


@dataclass
class _Position:
    told: list[tuple[int, int, Op]] = field(default_factory=list)
    """(when it was acknowledged, offset)"""
    asked: list[tuple[int, int, Op]] = field(default_factory=list)
    """(when it began, offset) of commits that were acknowledged"""
    reads: list[tuple[int, int, Op]] = field(default_factory=list)
    possible: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)

    def check(self, report: Report, place: Place) -> None:
        group, key = place
        self.told.sort(key=lambda entry: entry[0])
        for name, later in (("commit-regressed", self.asked), ("lost-commit", self.reads)):
            highest, index, by = -1, 0, None
            for when, offset, op in sorted(later, key=lambda entry: entry[0]):
                while index < len(self.told) and self.told[index][0] < when:
                    if self.told[index][1] > highest:
                        highest, by = self.told[index][1], self.told[index][2]
                    index += 1
                if offset < highest and by is not None:
                    text = f"{key} of group {group} stood at {highest}, then at {offset}"
                    report.error(name, text, by, op)
        for _, offset, op in self.reads:
            if offset >= 0 and offset not in self.possible:
                name = "aborted-commit" if offset in self.aborted else "phantom-commit"
                report.error(name, f"{key} of group {group} stands at {offset}", op)


def _positions(facts: Facts) -> dict[Place, _Position]:
    found: dict[Place, _Position] = {}
    for op in facts.history.ops:
        for action in op.actions:
            match action:
                case Commit():
                    position = found.setdefault((action.group, action.key), _Position())
                    if op.outcome == "fail":
                        position.aborted.add(action.offset)
                        continue
                    position.possible.add(action.offset)
                    if op.outcome == "ok" and op.end is not None:
                        position.told.append((op.end, action.offset, op))
                        position.asked.append((op.start, action.offset, op))
                case Committed() if op.outcome == "ok":
                    position = found.setdefault((action.group, action.key), _Position())
                    position.reads.append((op.start, -1 if action.offset is None else action.offset, op))
    return found


def _skipped(facts: Facts, report: Report, positions: dict[Place, _Position]) -> None:
    """Records below a committed position that no member of the group ever got."""
    polled: dict[Place, set[int]] = {}
    for op in facts.history.ops:
        group = facts.groups.get(op.process)
        if group is not None:
            for action in op.actions:
                if isinstance(action, Poll):
                    polled.setdefault((group, action.key), set()).add(action.offset)
    members = set(facts.groups.values())
    for (group, name), position in positions.items():
        if group not in members or name not in facts.keys:
            continue
        highest = max((offset for _, offset, _ in position.told), default=0)
        got = polled.get((group, name), set())
        missing = [offset for offset in facts.keys[name].existing() if offset < highest and offset not in got]
        if missing:
            text = f"group {group} committed {highest} of {name}, {len(missing)} records below it were never polled"
            report.error("commit-skip", f"{text}, {missing[0]} the first")
