"""A member of a consumer group and what it has, as the records keep them. Values only: replaced, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""The member is gone for a while and will be back under the same instance id."""

Target: TypeAlias = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions."""
Held: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the epoch in which the member got it (KIP-1251). No topic is without partitions."""
NOTHING_HELD: Final[Held] = {}


class MemberState(IntEnum):
    """As stored."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It was asked to give partitions up and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """Partitions of its target are still with others."""
    UNKNOWN = 127
    """One that a newer release has stored."""


class ClassicSide(NamedTuple):
    """Of a member that speaks the classic protocol within a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Profile(NamedTuple):
    """What a member says about itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    """Names, sorted."""
    regex: str
    """Empty is none."""
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicSide | None = None


class Current(NamedTuple):
    """Where a member stands on its way to its target."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: int = MemberState.STABLE
    assigned: Held = NOTHING_HELD
    revoking: Held = NOTHING_HELD
    """What the member was asked to give up. It owns these until it has said that it does not."""


NEW_MEMBER: Final = Current()


class Resolved(NamedTuple):
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """The offset of the metadata it was resolved against."""
    wall_ms: int
