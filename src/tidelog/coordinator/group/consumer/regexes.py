"""Subscriptions by regular expression: resolved beside the heartbeats, and again when topics come and go."""

from __future__ import annotations

from typing import Final

from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.model import Resolved
from tidelog.coordinator.group.consumer.records import ResolvedRegex
from tidelog.coordinator.group.consumer.upkeep import Outcome, Upkeep
from tidelog.coordinator.group.patterns import InvalidPattern, compile_pattern
from tidelog.coordinator.group.records import GroupRecord
from tidelog.coordinator.moment import Moment

REFRESH_DELAY_MS: Final = 500
"""After topics came or went: many of them may be on their way."""


class Regexes:
    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep

    def resolve(self, group: ConsumerGroup, regex: str, now: Moment) -> Outcome:
        if not group.uses_regex(regex):
            return Decision((), None)
        topics = self._upkeep.topics
        try:
            matched = compile_pattern(regex).matches(topics.names())
        except InvalidPattern:
            # One that Apache Kafka took and RE2 does not: as if it matched nothing.
            matched = frozenset()
        known = group.regexes.get(regex)
        if known is not None and known.topics == matched:
            return Decision((), None)
        resolved = Resolved(matched, topics.version(), now.wall_ms)
        records: list[GroupRecord] = [ResolvedRegex(group.group_id, regex, resolved)]
        records += self._upkeep.next_epoch(group, now, resolved={regex: resolved})
        return Decision(records, None, then=lambda now: self._resolved(group, now))

    def _resolved(self, group: ConsumerGroup, now: Moment) -> Outcome:
        self._upkeep.want_target(group, now)
        return Decision((), None)

    def topics_changed(self, group: ConsumerGroup, now: Moment) -> None:
        for regex in group.used_regexes():
            self._upkeep.resolve_soon(group, regex, now.ms + REFRESH_DELAY_MS)
