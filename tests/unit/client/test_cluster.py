from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.client.fakes import PORT, FakeCluster, client
from tidelog.client.cluster import ANY_NODE, CONTROLLER, Cluster
from tidelog.client.coordinators import Coordinators
from tidelog.client.errors import BrokerError, ClientError, ConnectionLostError, MissingError, UnreachableError
from tidelog.client.fetching import fetch
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets, try_list_offsets
from tidelog.client.producing import Produced, produce
from tidelog.client.topics import NewTopic, create_topics, delete_topics
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from tidelog.sim.loop import run, sim_loop
from tidelog.sim.net import SimNet

Scenario = Callable[[FakeCluster, Cluster], Coroutine[Any, Any, None]]


def play(scenario: Scenario, *, brokers: int = 1, bootstrap: str = f"b1:{PORT}", **options: Any) -> None:
    async def main() -> None:
        fake = FakeCluster(SimNet(sim_loop()), brokers)
        await fake.start()
        async with client(fake.net, bootstrap, **options) as cluster:
            await scenario(fake, cluster)

    for seed in range(3):
        run(main(), seed)


def leads(fake: FakeCluster, node_id: int, at: TopicPartition) -> bool:
    return fake.leaders[at.topic][at.partition] == node_id


def serve_offsets(fake: FakeCluster) -> None:
    """Every broker knows the offset 100 + partition of what it leads, and nothing of the rest."""
    for broker in fake.brokers:

        def handle(request: ListOffsetsRequest, version: int, node_id: int = broker.node_id) -> ListOffsetsResponse:
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsResponse.ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[
                            ListOffsetsResponse.ListOffsetsPartitionResponse(
                                partition_index=part.partition_index,
                                error_code=0
                                if leads(fake, node_id, TopicPartition(topic.name, part.partition_index))
                                else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                                offset=100 + part.partition_index,
                            )
                            for part in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )

        broker.handlers[ListOffsetsRequest] = handle


class TestBootstrap:
    def test_the_first_that_answers_is_taken(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders["t"] = [1]
            assert (await cluster.topic("t")).name == "t"

        play(scenario, brokers=2, bootstrap=f"nowhere:1,b1:1,b2:{PORT}")

    def test_when_none_answers_it_says_so_at_once(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            with pytest.raises(UnreachableError) as caught:
                await cluster.topic("t")
            assert set(caught.value.reasons) == {"nowhere:1", "b1:2"}
            assert sim_loop().time() < 1

        play(scenario, bootstrap="nowhere:1,b1:2")

    def test_or_waits_for_it_when_asked_to(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.net.crash("b1")
            fake.leaders["t"] = [1]
            sim_loop().call_later(20, lambda: asyncio.ensure_future(fake.start()))
            await cluster.topic("t")
            assert 20 < sim_loop().time() < 22

        play(scenario, bootstrap_timeout_s=30)

    def test_after_an_answer_an_outage_is_waited_out(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders["t"] = [1]
            serve_offsets(fake)
            at = TopicPartition("t", 0)
            await list_offsets(cluster, {at: LATEST})
            fake.net.crash("b1")
            sim_loop().call_later(20, lambda: asyncio.ensure_future(fake.start()))
            assert (await list_offsets(cluster, {at: LATEST}))[at].offset == 100

        play(scenario)

    def test_a_closed_client_says_so(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            await cluster.close()
            with pytest.raises(ClientError, match="has been closed"):
                await cluster.refresh(None)

        play(scenario)

    def test_closing_leaves_no_connection(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            await cluster.connection(ANY_NODE)
            await cluster.refresh([])
            await cluster.connection(2)
            await cluster.connection(2, "fetch")
            await cluster.close()
            await asyncio.sleep(1)
            assert fake.net.connection_count() == 0

        play(scenario, brokers=2)


class TestMetadata:
    def test_a_topic_is_asked_for_once_while_it_is_fresh(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders["t"] = [1]
            for _ in range(5):
                await cluster.topic("t")
            assert len(fake[1].requests(MetadataRequest)) == 1
            await asyncio.sleep(301)
            await cluster.topic("t")
            assert len(fake[1].requests(MetadataRequest)) == 2

        play(scenario)

    def test_a_missing_topic_is_an_error_soon(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            with pytest.raises(MissingError, match="topic nope"):
                await cluster.topic("nope")
            assert not fake[1].requests(MetadataRequest)[0].allow_auto_topic_creation
            assert sim_loop().time() < 1

        play(scenario)

    def test_a_topic_that_is_being_created_is_waited_for(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            sim_loop().call_later(2, lambda: fake.leaders.update(new=[1]))
            assert (await cluster.topic("new", auto_create=True)).name == "new"
            assert fake[1].requests(MetadataRequest)[0].allow_auto_topic_creation

        play(scenario)

    def test_but_not_for_ever(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            with pytest.raises(BrokerError) as caught:
                await cluster.topic("new", auto_create=True)
            assert 8 < sim_loop().time() < 12
            assert "attempts" in caught.value.__notes__[0]

        play(scenario)

    def test_an_old_broker_without_topic_ids_is_spoken_to_by_name(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders["t"] = [1]
            fake[1].ranges |= {3: (0, 5)}
            seen: list[tuple[str, int]] = []

            def handle(request: FetchRequest, version: int) -> FetchResponse:
                seen.append((request.topics[0].topic, version))
                part = FetchResponse.PartitionData(partition_index=0, records=b"")
                return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[part])])

            fake[1].handlers[FetchRequest] = handle
            await fetch(cluster, TopicPartition("t", 0), 0)
            assert seen == [("t", 12)]

        play(scenario)

    def test_unknown_error_codes_do_not_crash(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake[1].handlers[MetadataRequest] = lambda request, version: MetadataResponse(error_code=9999)
            with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
                await cluster.refresh([])

        play(scenario)


class TestLeaders:
    def test_each_leader_is_asked_for_its_own(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [1, 2, 3, 1], "u": [3]}
            serve_offsets(fake)
            wanted = [TopicPartition("t", index) for index in range(4)] + [TopicPartition("u", 0)]
            found = await list_offsets(cluster, dict.fromkeys(wanted, LATEST))
            assert {at: result.offset for at, result in found.items()} == {at: 100 + at.partition for at in wanted}
            assert [len(fake[node].requests(ListOffsetsRequest)) for node in (1, 2, 3)] == [1, 1, 1]

        play(scenario, brokers=3)

    def test_a_leader_that_moved_is_found_again(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [1, 2]}
            serve_offsets(fake)
            at = TopicPartition("t", 0)
            await cluster.topic("t")
            fake.leaders = {"t": [2, 2]}
            found = await list_offsets(cluster, {at: LATEST, TopicPartition("t", 1): LATEST})
            assert found[at].offset == 100
            # Only what failed is asked again.
            asked = [len(request.topics[0].partitions) for request in fake[2].requests(ListOffsetsRequest)]
            assert asked == [1, 1]

        play(scenario, brokers=2)

    def test_a_leader_that_died_is_replaced(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [1]}
            serve_offsets(fake)
            at = TopicPartition("t", 0)
            await list_offsets(cluster, {at: LATEST})
            fake.net.crash("b1")
            sim_loop().call_later(5, lambda: fake.leaders.update(t=[2]))
            assert (await list_offsets(cluster, {at: LATEST}))[at].offset == 100
            assert sim_loop().time() < 10

        play(scenario, brokers=2, bootstrap=f"b1:{PORT},b2:{PORT}")

    def test_a_partition_without_leader_is_waited_for_then_reported(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [-1, 1]}
            serve_offsets(fake)
            ends = dict.fromkeys([TopicPartition("t", 0), TopicPartition("t", 1)], LATEST)
            results = await try_list_offsets(cluster, ends)
            error = results[TopicPartition("t", 0)]
            assert isinstance(error, BrokerError)
            assert error.code == ErrorCode.LEADER_NOT_AVAILABLE
            assert not isinstance(results[TopicPartition("t", 1)], ClientError)
            assert 50 < sim_loop().time() < 70

        play(scenario)

    def test_a_partition_that_is_new_is_found(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [1]}
            serve_offsets(fake)
            await cluster.topic("t")
            sim_loop().call_later(0.3, lambda: fake.leaders.update(t=[1, 1]))
            at = TopicPartition("t", 1)
            assert (await list_offsets(cluster, {at: LATEST}))[at].offset == 101

        play(scenario)

    def test_a_missing_partition_is_reported_soon(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [1]}
            with pytest.raises(BrokerError, match="partition 5 of topic t"):
                await list_offsets(cluster, {TopicPartition("t", 5): LATEST})
            assert sim_loop().time() < 1

        play(scenario)

    def test_retries_back_off_with_jitter(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [2]}
            moments: list[float] = []

            def refuse(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
                moments.append(sim_loop().time())
                part = ListOffsetsResponse.ListOffsetsPartitionResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
                topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[part])
                return ListOffsetsResponse(topics=[topic])

            fake.handle(ListOffsetsRequest, refuse)
            with pytest.raises(BrokerError):
                await list_offsets(cluster, {TopicPartition("t", 0): LATEST})
            waits = [b - a for a, b in pairwise(moments)]
            assert all(wait < 1.25 for wait in waits)
            assert waits[0] < 0.1
            assert waits[-1] > 0.75
            assert len(set(waits)) == len(waits)

        play(scenario, brokers=2)


class TestProduce:
    BATCH = bytes(build_batch([RecordInput(b"k", b"v", 1)]))

    @staticmethod
    def answer(at: TopicPartition, code: int = 0, message: str | None = None) -> ProduceResponse:
        part = ProduceResponse.PartitionProduceResponse(
            index=at.partition, error_code=code, base_offset=42, error_message=message
        )
        topic = ProduceResponse.TopicProduceResponse(name=at.topic, partition_responses=[part])
        return ProduceResponse(responses=[topic])

    def test_the_batch_arrives_as_it_is(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [1]}
            at = TopicPartition("t", 0)
            batches: list[bytes] = []

            def handle(request: ProduceRequest, version: int) -> ProduceResponse:
                batches.append(bytes(request.topic_data[0].partition_data[0].records or b""))
                answer = self.answer(at)
                answer.responses[0].name = ""
                answer.responses[0].topic_id = request.topic_data[0].topic_id
                return answer

            fake[1].handlers[ProduceRequest] = handle
            assert await produce(cluster, at, self.BATCH) == Produced(42)
            assert batches == [self.BATCH]

        play(scenario)

    def test_acks_0_waits_for_nothing(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [1]}
            fake[1].handlers[ProduceRequest] = lambda request, version: None
            at = TopicPartition("t", 0)
            assert await produce(cluster, at, self.BATCH, acks=0) == Produced(-1)
            await cluster.refresh([])  # an answer to the next request is not taken for one to the produce
            assert len(fake[1].requests(ProduceRequest)) == 1

        play(scenario)

    def test_a_refusal_carries_the_words_of_the_broker(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake.leaders = {"t": [1]}
            fake[1].ranges |= {0: (3, 12)}
            at = TopicPartition("t", 0)
            fake[1].handlers[ProduceRequest] = lambda request, version: self.answer(
                at, ErrorCode.INVALID_RECORD, "the record has no key."
            )
            with pytest.raises(BrokerError, match=r"partition 0 of topic t: the record has no key \(INVALID_RECORD\)"):
                await produce(cluster, at, self.BATCH)

        play(scenario)


class TestController:
    def test_the_controller_is_asked_and_looked_up_again(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

            def handle(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
                result = CreateTopicsResponse.CreatableTopicResult(
                    name=request.topics[0].name, error_code=codes.pop(0), num_partitions=4, replication_factor=2
                )
                return CreateTopicsResponse(topics=[result])

            fake[2].handlers[CreateTopicsRequest] = handle
            results = await create_topics(cluster, [NewTopic(name="t")])
            assert not isinstance(results["t"], ClientError)
            assert results["t"].partitions == 4
            assert codes == []

        play(scenario, brokers=2)

    def test_a_missing_topic_is_not_asked_for_twice(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake[1].handlers[DeleteTopicsRequest] = lambda request, version: DeleteTopicsResponse(
                responses=[
                    DeleteTopicsResponse.DeletableTopicResult(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                ]
            )
            results = await delete_topics(cluster, ["t"])
            assert isinstance(results["t"], BrokerError)
            assert len(fake[1].requests(DeleteTopicsRequest)) == 1

        play(scenario)

    def test_an_old_broker_is_given_names(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake[1].ranges |= {20: (1, 5)}
            fake[1].handlers[DeleteTopicsRequest] = lambda request, version: DeleteTopicsResponse(
                responses=[DeleteTopicsResponse.DeletableTopicResult(name=name) for name in request.topic_names]
            )
            assert await delete_topics(cluster, ["t"]) == {"t": None}

        play(scenario)

    def test_without_one_any_broker_serves(self) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake[1].handlers[MetadataRequest] = lambda request, version: MetadataResponse(
                brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="b1", port=PORT)]
            )
            assert (await cluster.connection(CONTROLLER)).is_open

        play(scenario)


class TestCoordinators:
    @pytest.mark.parametrize("version", [0, 3, 6])
    def test_they_are_found_in_every_version_and_remembered(self, version: int) -> None:
        async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
            fake[1].ranges |= {10: (0, version)}

            def handle(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
                if version < 4:
                    return FindCoordinatorResponse(node_id=int(request.key[-1]))
                return FindCoordinatorResponse(
                    coordinators=[
                        FindCoordinatorResponse.Coordinator(key=key, node_id=int(key[-1]))
                        for key in request.coordinator_keys
                    ]
                )

            fake[1].handlers[FindCoordinatorRequest] = handle
            coordinators = Coordinators(cluster)
            assert await coordinators.locate(["g1", "g2"]) == {"g1": 1, "g2": 2}
            asked = len(fake[1].requests(FindCoordinatorRequest))
            assert await coordinators.find("g2") == 2
            assert len(fake[1].requests(FindCoordinatorRequest)) == asked
            coordinators.forget("g2")
            assert await coordinators.find("g2") == 2
            assert len(fake[1].requests(FindCoordinatorRequest)) == asked + 1

        play(scenario, brokers=2)


def test_one_connection_serves_many_callers_at_once() -> None:
    async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
        await cluster.refresh([])
        connections = await asyncio.gather(*(cluster.connection(2) for _ in range(10)))
        assert len(set(map(id, connections))) == 1
        other = await cluster.connection(2, "fetch")
        assert other is not connections[0]

    play(scenario, brokers=2)


def test_a_lost_connection_is_opened_again() -> None:
    async def scenario(fake: FakeCluster, cluster: Cluster) -> None:
        fake.leaders = {"t": [1]}
        await cluster.refresh(["t"])
        for connection in fake[1].connections:
            connection.transport.abort()
        with pytest.raises(ConnectionLostError):
            await cluster.refresh(["t"])
        await cluster.refresh(["t"])

    play(scenario)
