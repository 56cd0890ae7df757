"""The same requests to Tidelog and to Apache Kafka: every answer of the transactional APIs must be the same, and so
must the records of `__transaction_state`.

Producer ids are numbered in the order in which they appear. CONCURRENT_TRANSACTIONS is asked again, as clients do: how
often it is told is a matter of time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import Struct

from tests.scenarios.transaction_data import DATA_SCENES
from tidelog.coordinator.partitioning import partition_for
from tidelog.protocol.batch import iter_headers, iter_records
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.protocol.records_framing import TRANSACTION, decode_coordinator_key, decode_coordinator_value
from tidelog.testing import Broker
from tidelog.testing.wire import Wire
from tools.apache import ApacheKafka, why_not

_TIMES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "50",
}
_Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
NO_ID = (-1, -1)
PATIENCE_S = 20.0
READY_S = 40.0


class Scene:
    """One transactional id, over one connection, and a transcript of all that was answered."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self._wire = Wire(bootstrap)
        self._ids: dict[int, str] = {-1: "-"}

    def close(self) -> None:
        self._wire.close()

    def call(self, request: Struct, version: int, shape: type[Struct], *, patient: bool = True) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response: Any = self._wire.call(request, version, shape)
            if not patient or "CONCURRENT" not in _errors(response) or time.monotonic() > deadline:
                return response
            time.sleep(0.02)

    def say(self, text: str) -> None:
        self.lines.append(text)

    def id(self, producer_id: int) -> str:
        return self._ids.setdefault(producer_id, f"p{len(self._ids)}")

    # requests

    def init(
        self,
        version: int = 4,
        expected: tuple[int, int] = NO_ID,
        timeout_ms: int = 60_000,
        *,
        patient: bool = True,
        **fields: Any,
    ) -> tuple[int, int]:
        if version < 3:
            request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
        else:
            request = InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=timeout_ms,
                producer_id=expected[0],
                producer_epoch=expected[1],
            )
        for key, value in fields.items():
            setattr(request, key, value)
        response = self.call(request, version, InitProducerIdResponse, patient=patient)
        self.say(f"init v{version}: {_errors(response)} {self.id(response.producer_id)} {response.producer_epoch}")
        return response.producer_id, response.producer_epoch

    def add(
        self, producer: tuple[int, int], *partitions: tuple[str, int], version: int = 3, name: str | None = None
    ) -> None:
        topics = _topics(partitions)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name if name is None else name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )
        self.say(f"add v{version}: {_errors(self.call(request, version, AddPartitionsToTxnResponse))}")

    def add_second(
        self,
        producer: tuple[int, int],
        *partitions: tuple[str, int],
        verify: bool = False,
        version: int = 5,
        name: str | None = None,
        patient: bool = True,
    ) -> None:
        """As a broker does for a client of version 2, or to verify one of version 1."""
        transaction = _Transaction(
            transactional_id=self.name if name is None else name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=verify,
            topics=_topics(partitions),
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        response = self.call(request, version, AddPartitionsToTxnResponse, patient=patient)
        self.say(f"{'verify' if verify else 'add'} v{version}: {_errors(response)}")

    def add_offsets(self, producer: tuple[int, int], version: int = 4, name: str | None = None) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name if name is None else name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id="some group",
        )
        self.say(f"add offsets v{version}: {_errors(self.call(request, version, AddOffsetsToTxnResponse))}")

    def end(
        self, producer: tuple[int, int], committed: bool, version: int = 3, name: str | None = None
    ) -> tuple[int, int]:
        request = EndTxnRequest(
            transactional_id=self.name if name is None else name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
        response = self.call(request, version, EndTxnResponse)
        what = "commit" if committed else "abort"
        self.say(f"{what} v{version}: {_errors(response)} {self.id(response.producer_id)} {response.producer_epoch}")
        return response.producer_id, response.producer_epoch

    def describe(self, *names: str) -> None:
        request = DescribeTransactionsRequest(transactional_ids=list(names or [self.name]))
        for state in self.call(request, 0, DescribeTransactionsResponse).transaction_states:
            state.producer_id = 0
            for topic in state.topics:
                topic.partitions.sort()
            state.topics.sort(key=lambda topic: topic.topic)
            state.transaction_start_time_ms = min(state.transaction_start_time_ms, 1)
            self.say(f"described {state}")

    def settle(self, wanted: str) -> None:
        """Wait until the coordinator is done with what goes on by itself."""
        for _ in range(500):
            request = DescribeTransactionsRequest(transactional_ids=[self.name])
            states = self.call(request, 0, DescribeTransactionsResponse).transaction_states
            if states[0].transaction_state == wanted:
                return
            time.sleep(0.02)
        raise AssertionError(f"{self.name} is {states[0].transaction_state}")

    def listed(self, version: int = 1, **filters: Any) -> None:
        response = self.call(ListTransactionsRequest(**filters), version, ListTransactionsResponse)
        found = [s.transaction_state for s in response.transaction_states if s.transactional_id == self.name]
        self.say(f"listed {_errors(response)} {found} {sorted(response.unknown_state_filters)}")


def _topics(partitions: tuple[tuple[str, int], ...]) -> list[_Topic]:
    names = dict.fromkeys(topic for topic, _ in partitions)
    return [_Topic(name=name, partitions=[index for topic, index in partitions if topic == name]) for name in names]


def _errors(response: Any) -> str:
    """Every error code in it. Apache answers partitions in no order."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, list):
            for entry in sorted(value, key=repr):
                walk(entry)
        elif isinstance(value, Struct):
            for name in value.__struct_fields__:
                field = getattr(value, name)
                if name.endswith("error_code"):
                    found.append(ErrorCode(field).name)
                elif name in ("name", "partition_index"):
                    found.append(str(field))
                else:
                    walk(field)

    walk(response)
    return " ".join(found)


# scenes


def first_version(scene: Scene) -> None:
    for version in (0, 1, 3):
        producer = scene.init(4)
        scene.describe()
        scene.add(producer, ("t", 0), version=version)
        scene.describe()
        scene.add(producer, ("t", 0), ("t", 1), version=version)
        scene.add_offsets(producer, version=version)
        scene.add_second(producer, ("t", 0), ("t", 2), verify=True)
        scene.add_second(producer, ("t", 1), verify=True, version=4)
        scene.end(producer, True, version=version)
        scene.settle("CompleteCommit")
        scene.end(producer, True, version=version)
        scene.end(producer, False, version=version)
        scene.describe()
        scene.add_second(producer, ("t", 1), verify=True)
        scene.add(producer, ("t", 1), version=version)
        scene.end(producer, False, version=version)
        scene.settle("CompleteAbort")
        scene.end(producer, False, version=version)
        scene.end(producer, True, version=version)


def second_version(scene: Scene) -> None:
    producer = scene.init(5)
    scene.add_second(producer, ("t", 0))
    scene.add_second(producer, ("t", 1), version=4)
    scene.describe()
    before, producer = producer, scene.end(producer, True, 5)
    scene.settle("CompleteCommit")
    scene.describe()
    scene.end(before, True, 5)
    scene.end(before, False, 5)
    scene.add_second(before, ("t", 0))
    scene.add_second(producer, ("t", 0))
    scene.end(before, True, 5)
    scene.end(before, False, 5)
    before, producer = producer, scene.end(producer, False, 5)
    scene.settle("CompleteAbort")
    scene.end(before, False, 5)
    scene.end(producer, True, 5)
    scene.end((producer[0], producer[1] + 1), True, 5)
    scene.describe()


def an_abort_of_nothing(scene: Scene) -> None:
    producer = scene.init(5)
    scene.end(producer, True, 5)
    producer = scene.end(producer, False, 5)
    scene.settle("CompleteAbort")
    scene.describe()
    producer = scene.end(producer, False, 5)
    scene.settle("CompleteAbort")
    scene.add_second(producer, ("t", 0))
    producer = scene.end(producer, True, 5)
    scene.settle("CompleteCommit")
    producer = scene.end(producer, False, 5)
    scene.settle("CompleteAbort")
    scene.end(producer, True, 4)
    scene.end(producer, False, 4)
    scene.describe()


def versions_take_turns(scene: Scene) -> None:
    producer = scene.init(4)
    scene.add(producer, ("t", 0))
    producer = scene.end(producer, True, 5)
    scene.add(producer, ("t", 0))
    scene.end(producer, True, 3)
    scene.settle("CompleteCommit")
    scene.add_second(producer, ("t", 0))
    scene.end(producer, False, 3)
    scene.settle("CompleteAbort")
    scene.end(producer, False, 5)
    scene.settle("CompleteAbort")


def a_producer_comes_back(scene: Scene) -> None:
    first = scene.init(4)
    second = scene.init(4, first)
    scene.init(4, first)
    third = scene.init(4)
    scene.init(4, first)
    scene.init(4, second)
    scene.init(3, second)
    scene.init(4, (third[0] + 1_000_000, 0))
    scene.init(4, third)
    scene.init(4, (5, -1))
    scene.init(4, (-1, 5))


def a_producer_comes_back_to_a_forgotten_id(scene: Scene) -> None:
    scene.init(4, (5_000, 7))


def a_new_producer_fences(scene: Scene) -> None:
    old = scene.init(4)
    scene.add(old, ("t", 0), ("u", 1))
    scene.init(4, patient=False)
    scene.settle("CompleteAbort")
    scene.describe()
    new = scene.init(4)
    for version in (0, 1, 2, 3):
        scene.add(old, ("t", 0), version=version)
        scene.add_offsets(old, version=version)
        scene.end(old, True, version=version)
    scene.add_second(old, ("t", 0))
    scene.add_second(old, ("t", 0), verify=True)
    scene.end(old, True, 5)
    scene.end(old, False, 5)
    scene.init(3, old)
    scene.init(4, old)
    scene.add(new, ("t", 0))
    scene.end(new, True)
    scene.settle("CompleteCommit")


def a_fenced_producer_of_the_second_version(scene: Scene) -> None:
    old = scene.init(5)
    scene.add_second(old, ("t", 0))
    scene.init(5, patient=False)
    scene.settle("CompleteAbort")
    new = scene.init(5)
    scene.end(old, True, 5)
    scene.end(old, False, 5)
    scene.add_second(new, ("t", 0))
    scene.end(old, False, 5)
    scene.end(new, True, 5)
    scene.settle("CompleteCommit")


def nobody_knows_it(scene: Scene) -> None:
    for version in (0, 3):
        scene.add((4, 0), ("t", 0), version=version)
        scene.add_offsets((4, 0), version=version)
        scene.end((4, 0), True, version)
        scene.add((4, 0), ("t", 0), version=version, name="")
        scene.add_offsets((4, 0), version=version, name="")
        scene.end((4, 0), True, version, name="")
    scene.end((4, 0), True, 5)
    scene.end((4, 0), True, 5, name="")
    scene.add_second((4, 0), ("t", 0))
    scene.add_second((4, 0), ("t", 0), verify=True)
    scene.add_second((4, 0), ("t", 0), name="")
    scene.add_second((4, 0), ("t", 0), verify=True, name="")
    scene.describe(scene.name, "")
    producer = scene.init(4)
    other = (producer[0] + 1_000_000, producer[1])
    scene.add(other, ("t", 0))
    scene.end(other, True)
    scene.end(other, True, 5)
    scene.end((-1, -1), True, 5)
    scene.add_second(other, ("t", 0), verify=True)
    scene.end(producer, True)
    scene.end(producer, False)


def bad_requests(scene: Scene) -> None:
    for timeout_ms in (0, -1, 900_001, 2_147_483_647):
        scene.init(4, timeout_ms=timeout_ms)
    scene.init(4, transactional_id="")
    scene.describe()
    producer = scene.init(4, timeout_ms=900_000)
    scene.add(producer, ("t", 0), ("missing", 0), ("t", 99))
    scene.add_second(producer, ("t", 0), ("missing", 0))
    scene.add_second(producer, ("missing", 0), verify=True)
    scene.describe()
    for topic in ("__consumer_offsets", "__transaction_state"):
        scene.add(producer, (topic, 0))
        scene.add(producer, ("t", 0), ("u", 0), (topic, 0), ("missing", 0), version=1)
        scene.add_second(producer, (topic, 0))
        scene.add_second(producer, (topic, 0), verify=True)
    scene.add(producer)
    scene.describe()


def lists(scene: Scene) -> None:
    scene.listed()
    producer = scene.init(4)
    scene.listed()
    scene.listed(state_filters=["Empty"])
    scene.listed(state_filters=["Ongoing", "Nonsense"])
    scene.listed(state_filters=["Nonsense"])
    scene.listed(producer_id_filters=[producer[0]])
    scene.listed(producer_id_filters=[producer[0] + 1_000_000])
    scene.listed(duration_filter=100_000)
    scene.add(producer, ("t", 0))
    scene.listed(version=0)
    scene.listed(state_filters=["Ongoing"], producer_id_filters=[producer[0]])
    scene.listed(duration_filter=100_000)
    # Older than 0 ms: one of this very millisecond is left out.
    time.sleep(0.005)
    scene.listed(duration_filter=0)
    for pattern in (None, "", "li", "l.*s", ".*", "(", "(?=l)ists"):
        scene.listed(version=2, transactional_id_pattern=pattern)


def time_runs_out(scene: Scene) -> None:
    old = scene.init(4, timeout_ms=1)
    scene.add(old, ("t", 0))
    scene.settle("CompleteAbort")
    scene.describe()
    for version in (1, 2):
        scene.add(old, ("t", 0), version=version)
        scene.end(old, True, version)
        scene.end(old, False, version)
    scene.init(4, old)
    scene.init(4)


def time_runs_out_in_the_second_version(scene: Scene) -> None:
    old = scene.init(5, timeout_ms=1)
    scene.add_second(old, ("t", 0))
    scene.settle("CompleteAbort")
    scene.add_second(old, ("t", 0))
    scene.add_second(old, ("t", 0), verify=True)
    producer = scene.end(old, False, 5)
    scene.add_second(producer, ("t", 0))
    scene.settle("CompleteAbort")


SCENES = [
    first_version,
    second_version,
    an_abort_of_nothing,
    versions_take_turns,
    a_producer_comes_back,
    a_producer_comes_back_to_a_forgotten_id,
    a_new_producer_fences,
    a_fenced_producer_of_the_second_version,
    nobody_knows_it,
    bad_requests,
    lists,
    time_runs_out,
    time_runs_out_in_the_second_version,
]


def stored(bootstrap: str, name: str, ids: dict[int, str]) -> list[str]:
    asked = FetchRequest.FetchPartition(partition=partition_for(name, 50), partition_max_bytes=1 << 20)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic="__transaction_state", partitions=[asked])])
    with Wire(bootstrap) as wire:
        data = bytes(wire.call(request, 11, FetchResponse).responses[0].partitions[0].records or b"")
    lines = []
    for position, header in iter_headers(data):
        head = (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence)
        for record in iter_records(data[position : position + header.size], header):
            key = decode_coordinator_key(record.key or b"", TRANSACTION)
            assert key is not None
            if getattr(key, "transactional_id", None) == name:
                decoded = None if record.value is None else decode_coordinator_value(key, record.value)
                lines.append(f"{head} {_masked(decoded, ids)}")
    return lines


def _masked(decoded: Any, ids: dict[int, str]) -> str:
    if decoded is None:
        return "tombstone"
    value, version = decoded
    for field in ("producer_id", "previous_producer_id", "next_producer_id"):
        setattr(value, field, ids.get(getattr(value, field), "?"))
    value.transaction_last_update_timestamp_ms = 0
    value.transaction_start_timestamp_ms = min(value.transaction_start_timestamp_ms, 1)
    for topic in value.transaction_partitions or ():
        topic.partition_ids.sort()
        if topic.topic == "__consumer_offsets":
            topic.partition_ids = [0]
    if value.transaction_partitions is not None:
        value.transaction_partitions.sort(key=lambda topic: topic.topic)
    return f"v{version} {value}"


def transcript(bootstrap: str, play: Callable[[Scene], None]) -> list[str]:
    scene = Scene(bootstrap, play.__name__)
    try:
        play(scene)
        return [*scene.lines, *stored(bootstrap, scene.name, scene._ids)]
    finally:
        scene.close()


def until_ready(ask: Callable[[], int]) -> None:
    """Apache makes its internal topics first: beside other tests that takes a while."""
    deadline = time.monotonic() + READY_S
    while code := ask():
        assert time.monotonic() < deadline, f"the broker does not get ready: {ErrorCode(code).name}"
        time.sleep(0.02)


def prepare(bootstrap: str) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in ("t", "u")
    ]
    with Wire(bootstrap) as wire:
        wire.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7, CreateTopicsResponse)
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
            until_ready(lambda find=find: wire.call(find, 4, FindCoordinatorResponse).coordinators[0].error_code)
        warm = InitProducerIdRequest(transactional_id="warm", transaction_timeout_ms=1_000)
        until_ready(lambda: wire.call(warm, 2, InitProducerIdResponse).error_code)


@pytest.fixture(scope="module")
def tidelog() -> Iterator[str]:
    with Broker(_TIMES) as broker:
        prepare(broker.bootstrap_servers)
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with ApacheKafka(tmp_path_factory.mktemp("apache"), heap="384m", properties=_TIMES) as kafka:
        prepare(kafka.bootstrap_servers)
        yield kafka.bootstrap_servers


@pytest.mark.java
@pytest.mark.parametrize("play", [*SCENES, *DATA_SCENES], ids=lambda play: str(play.__name__))
def test_answers_and_records_are_apaches(tidelog: str, apache: str, play: Callable[[Scene], None]) -> None:
    assert "\n".join(transcript(tidelog, play)) == "\n".join(transcript(apache, play))
