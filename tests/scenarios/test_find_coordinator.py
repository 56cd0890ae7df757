"""Who coordinates a group, asked of a node that has never had one."""

from __future__ import annotations

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire


def test_the_first_question_waits_for_the_offsets_topic_and_names_the_node() -> None:
    with Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        answer = wire.call(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 4, FindCoordinatorResponse)
        host, _, port = broker.bootstrap_servers.partition(":")
        assert [(c.key, c.error_code, c.node_id, c.host, c.port) for c in answer.coordinators] == [
            (key, ErrorCode.NONE, 1, host, int(port)) for key in ("a", "b")
        ]


def test_coordinators_that_are_not_there_yet_are_refused_with_a_sentence(wire: Wire) -> None:
    answer = wire.call(FindCoordinatorRequest(key_type=2, coordinator_keys=["t"]), 6, FindCoordinatorResponse)
    assert (answer.coordinators[0].error_code, answer.coordinators[0].error_message) == (
        ErrorCode.INVALID_REQUEST,
        "share groups are not supported yet",
    )


def test_the_coordinator_of_transactional_ids_makes_its_topic(broker: Broker, wire: Wire) -> None:
    answer = wire.call(FindCoordinatorRequest(key_type=1, key="x"), 3, FindCoordinatorResponse)
    assert answer.error_code == ErrorCode.NONE
    assert f"{answer.host}:{answer.port}" == broker.bootstrap_servers
    many = wire.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"]), 4, FindCoordinatorResponse)
    assert [(one.key, one.error_code, one.port) for one in many.coordinators] == [
        ("x", 0, answer.port),
        ("y", 0, answer.port),
    ]
    topics = [MetadataRequest.MetadataRequestTopic(name="__transaction_state")]
    (topic,) = wire.call(MetadataRequest(topics=topics), 12, MetadataResponse).topics
    assert (topic.is_internal, topic.error_code) == (True, 0)
    assert topic.partitions
