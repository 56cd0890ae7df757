"""The deadlines of one shard's groups, by what they mean."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class TimerKind(IntEnum):
    SESSION = 0
    """A member, or an id that was handed out, was not heard of in time."""
    INITIAL_JOIN = 1
    """The wait for more members of a group that was empty."""
    JOIN = 2
    """The rebalance time-out: who has not rejoined is out."""
    SYNC = 3
    """Who has joined and not asked for its assignment is out."""
    EXPIRY = 4
    """Time to look for old offsets and groups."""
    CONSUMER_SESSION = 5
    """A member of a consumer group was not heard of in time."""
    REVOCATION = 6
    """A member of a consumer group has not given up in time what it was asked to."""
    TARGET = 7
    """The next target assignment of a consumer group may be computed."""
    REGEX = 8
    """A regular expression is to be held against the topics; its text stands in the place of the member."""
    CLASSIC_JOIN = 9
    """A classic member of a consumer group was told to join again and has not."""
    CLASSIC_SYNC = 10
    """A classic member of a consumer group has joined and not asked for its assignment."""
    MATCHED = 11
    """A regular expression was held against all topics: what it has matched is to be stored."""


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str = ""
    member_id: str = ""
