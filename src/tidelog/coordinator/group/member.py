"""One member of a classic group, as it is in memory between two generations."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from tidelog.coordinator.outbox import Waiting
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.records_group import GroupMetadataValue
from tidelog.protocol.messages.sync_group import SyncGroupResponse

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata in the order of preference. The metadata is the client's own affair: never looked into here."""


@dataclass(slots=True, eq=False, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It has not seen the answer to its first JoinGroup, so it cannot send heartbeats."""
    is_anonymous: bool = False
    """It does not know its id either: a client that asks again does so as another member."""
    connection: int = 0
    """The youngest one that it has joined on: what still comes out of an older one it has asked again since."""
    awaiting_join: Waiting[JoinGroupResponse] | None = None
    awaiting_sync: Waiting[SyncGroupResponse] | None = None

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Container[str]) -> str:
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"{self.member_id} supports none of the common protocols")

    @property
    def is_excused(self) -> bool:
        """Waiting for the others is a sign of life, except for a new member, whose client may be long gone."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def to_record(self, protocol: str | None, assignment: bytes) -> GroupMetadataValue.MemberMetadata:
        return GroupMetadataValue.MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    @classmethod
    def from_record(cls, record: GroupMetadataValue.MemberMetadata, protocol: str | None) -> Member:
        timeout_ms = record.session_timeout if record.rebalance_timeout == -1 else record.rebalance_timeout
        return cls(
            member_id=record.member_id,
            instance_id=record.group_instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=timeout_ms,
            session_timeout_ms=record.session_timeout,
            protocols=((protocol or "", record.subscription),),
            assignment=record.assignment,
        )
