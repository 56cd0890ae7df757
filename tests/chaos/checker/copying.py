"""Exactly-once copying: what the target holds in the end is what the source held below the committed position, each
value once, in the source's order. Judged by what was read of both topics.

A copy of `v` is named `v@ATTEMPT`, another one for each attempt: a value stands in one place only."""

from __future__ import annotations

from tests.chaos.checker.facts import Facts, Key
from tests.chaos.checker.report import Report
from tests.chaos.history import Commit, Committed, Copy


def check(facts: Facts, report: Report) -> None:
    for copy in facts.history.meta.copies:
        _check(facts, report, copy)


def _check(facts: Facts, report: Report, copy: Copy) -> None:
    sources = {key.name: key for key in facts.keys.values() if key.name.rpartition("/")[0] == copy.source}
    targets = {key.name: key for key in facts.keys.values() if key.name.rpartition("/")[0] == copy.target}
    committed = _committed(facts, copy.group)
    wanted = {value for key in sources.values() for value in key.seen}
    there: dict[str, str] = {}
    for key in targets.values():
        for copied in key.seen:
            value = original(copied)
            if value in there:
                report.error("output-duplicate", f"{value} has the copies {there[value]} and {copied} of {key.name}")
            there[value] = f"{copied} of {key.name}"
            if value not in wanted:
                report.error("output-invented", f"{copied} of {key.name} was never in {copy.source}")
    for name, key in sources.items():
        highest = committed.get(name, 0)
        for value in key.seen:
            if key.offset_of[value] < highest and value not in there:
                text = f"{value} at {key.offset_of[value]} of {name} was passed by the group, it has no output"
                report.error("output-missing", text)
        partition = name.rpartition("/")[2]
        if target := targets.get(f"{copy.target}/{partition}"):
            _in_order(report, key, target)


def original(copied: str) -> str:
    return copied.rpartition("@")[0] or copied


def _in_order(report: Report, source: Key, target: Key) -> None:
    last = -1
    for offset in sorted(target.value_at):
        value = target.value_at[offset]
        place = source.offset_of.get(original(value))
        if place is None or value not in target.seen:
            continue
        if place < last:
            report.error("output-reordered", f"{value} at {offset} of {target.name} follows what came later")
        last = max(last, place)


def _committed(facts: Facts, group: str) -> dict[str, int]:
    highest: dict[str, int] = {}
    for op in facts.history.ops:
        if op.outcome != "ok":
            continue
        for action in op.actions:
            if isinstance(action, Commit | Committed) and action.group == group and action.offset is not None:
                highest[action.key] = max(highest.get(action.key, 0), action.offset)
    return highest
