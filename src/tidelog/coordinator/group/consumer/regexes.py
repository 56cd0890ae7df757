"""Subscriptions by regular expression: resolved beside the heartbeats, and again when topics come and go."""

from __future__ import annotations

from typing import Final

from tidelog.coordinator.chores import Work
from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.model import Resolved
from tidelog.coordinator.group.consumer.records import ResolvedRegex
from tidelog.coordinator.group.consumer.upkeep import NOTHING, Outcome, Upkeep
from tidelog.coordinator.group.patterns import InvalidPattern, compile_pattern
from tidelog.coordinator.group.records import GroupRecord
from tidelog.coordinator.moment import Moment

REFRESH_DELAY_MS: Final = 500
"""After topics came or went: many of them may be on their way."""


class Regexes:
    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep

    def match(self, group: ConsumerGroup, regex: str, now: Moment) -> Outcome:
        """Hold it against all topics, in slices; what it matches is stored when that is known."""
        if not group.uses_regex(regex):
            return NOTHING
        if regex in group.live.matching:
            # Topics came or went since that was begun: once more when it is done.
            self._upkeep.resolve_soon(group, regex, now.ms + REFRESH_DELAY_MS)
        else:
            group.live.matching.add(regex)
            self._upkeep.chores.begin(self._matching(group, regex, now.ms))
        return NOTHING

    def _matching(self, group: ConsumerGroup, regex: str, due_ms: int) -> Work[None]:
        topics = self._upkeep.topics
        names, version = list(topics.names()), topics.version()
        matched: frozenset[str] = frozenset()
        try:
            pattern = compile_pattern(regex)
            yield 100 + len(regex) // 4
            matched = yield from pattern.matching(names)
        except InvalidPattern:
            # One that Apache Kafka took and RE2 does not: as if it matched nothing.
            pass
        group.live.matching.discard(regex)
        group.live.matched[regex] = (matched, version)
        self._upkeep.has_matched(group, regex, due_ms)

    def resolve(self, group: ConsumerGroup, regex: str, now: Moment) -> Outcome:
        found = group.live.matched.pop(regex, None)
        if found is None or not group.uses_regex(regex):
            return NOTHING
        matched, version = found
        known = group.regexes.get(regex)
        if known is not None and known.topics == matched:
            return NOTHING
        resolved = Resolved(matched, version, now.wall_ms)
        records: list[GroupRecord] = [ResolvedRegex(group.group_id, regex, resolved)]
        records += self._upkeep.next_epoch(group, now, resolved={regex: resolved})
        return Decision(records, None, then=lambda now: self._resolved(group, now))

    def _resolved(self, group: ConsumerGroup, now: Moment) -> Outcome:
        self._upkeep.want_target(group, now)
        return NOTHING

    def topics_changed(self, group: ConsumerGroup, now: Moment) -> None:
        for regex in group.used_regexes():
            self._upkeep.resolve_soon(group, regex, now.ms + REFRESH_DELAY_MS)
