"""A JoinGroup out of a connection that its member has given up for a younger one, through the sockets of a node."""

from __future__ import annotations

import pytest

from tidelog.client.consumer_protocol import encode_subscription
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire


def join(wire: Wire, member_id: str, topic: str = "t") -> JoinGroupResponse:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=encode_subscription([topic]))
    request = JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return wire.call(request, 9, JoinGroupResponse)


def test_it_is_not_carried_out_and_its_connection_is_closed() -> None:
    with Broker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        address = broker.bootstrap_servers
        with Wire(address) as older, Wire(address) as younger:
            older.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse)
            member_id = join(older, "").member_id
            joined = join(younger, member_id)
            assert joined.error_code == ErrorCode.NONE
            with pytest.raises(ConnectionError):
                join(older, member_id, topic="older")
            beat = HeartbeatRequest(group_id="g", member_id=member_id, generation_id=joined.generation_id)
            assert younger.call(beat, 4, HeartbeatResponse).error_code == ErrorCode.NONE
