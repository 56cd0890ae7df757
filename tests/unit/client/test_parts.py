"""The parts of the client that decide without asking anybody."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tidelog.client.accumulator import Accumulator, Pending
from tidelog.client.addresses import Address, parse_bootstrap
from tidelog.client.assignor import Subscriber, assign
from tidelog.client.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, AbortedTransaction, Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.client.options import ClientOptions
from tidelog.client.records import read_out
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, RecordInput, build_batch
from tidelog.protocol.errors import ErrorCode

AT = TopicPartition("t", 0)


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("localhost", [Address("localhost", 9092)]),
            ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
            ("[::1]:9093", [Address("::1", 9093)]),
            ("[::1]", [Address("::1", 9092)]),
            ("PLAINTEXT://kafka:29092", [Address("kafka", 29092)]),
        ],
    )
    def test_how_people_write_them(self, text: str, expected: list[Address]) -> None:
        assert list(parse_bootstrap(text)) == expected

    @pytest.mark.parametrize("text", ["", " , ", "host:", "host:port", "host:0", "host:70000", ":9092", "host:٣"])
    def test_what_is_none(self, text: str) -> None:
        with pytest.raises(ClientError, match=r"expected HOST:PORT, such as 127\.0\.0\.1:9092"):
            parse_bootstrap(text)

    def test_they_are_shown_as_they_are_written(self) -> None:
        assert [str(address) for address in parse_bootstrap("a:1,[::1]:2")] == ["a:1", "[::1]:2"]


class TestErrors:
    def test_the_broker_has_the_first_word(self) -> None:
        assert str(BrokerError(36, "topic t", "Topic 't' already exists.")) == (
            "topic t: Topic 't' already exists (TOPIC_ALREADY_EXISTS)"
        )

    def test_a_code_without_words_gets_ours(self) -> None:
        assert str(BrokerError(68, "group g")) == (
            "group g: the group has active members; stop them first (NON_EMPTY_GROUP)"
        )
        assert str(BrokerError(ErrorCode.SNAPSHOT_NOT_FOUND)) == "snapshot not found (SNAPSHOT_NOT_FOUND)"

    def test_a_code_of_the_future(self) -> None:
        error = BrokerError(9999)
        assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert not error.is_retriable


def test_back_off_doubles_to_its_bound_within_the_jitter() -> None:
    options = ClientOptions(retry_backoff_ms=100, retry_backoff_ms_max=1000)
    random = Random(1)
    for attempt, middle_s in enumerate([0.1, 0.2, 0.4, 0.8, 1.0, 1.0]):
        delays = [options.backoff_s(attempt, random) for _ in range(200)]
        assert middle_s * 0.8 <= min(delays) < middle_s * 0.9
        assert middle_s * 1.1 < max(delays) <= middle_s * 1.2
    assert options.backoff_s(100_000, random) < 1.3


class TestRangeAssignor:
    @staticmethod
    def spread(members: dict[str, tuple[str, ...]], partitions: dict[str, int]) -> dict[str, list[str]]:
        subscribers = [Subscriber(member, None, topics) for member, topics in members.items()]
        return {member: [str(at) for at in found] for member, found in assign(subscribers, partitions).items()}

    def test_the_first_members_get_one_more(self) -> None:
        assert self.spread({"b": ("t",), "a": ("t",), "c": ("t",)}, {"t": 7}) == {
            "a": ["t-0", "t-1", "t-2"],
            "b": ["t-3", "t-4"],
            "c": ["t-5", "t-6"],
        }

    def test_each_topic_is_spread_on_its_own(self) -> None:
        assert self.spread({"a": ("t", "u"), "b": ("t", "u")}, {"t": 3, "u": 3}) == {
            "a": ["t-0", "t-1", "u-0", "u-1"],
            "b": ["t-2", "u-2"],
        }

    def test_only_subscribers_of_a_topic_get_it(self) -> None:
        assert self.spread({"a": ("t",), "b": ("u",)}, {"t": 2, "u": 1}) == {"a": ["t-0", "t-1"], "b": ["u-0"]}

    def test_more_members_than_partitions_and_a_missing_topic(self) -> None:
        assert self.spread({"a": ("t", "gone"), "b": ("t",)}, {"t": 1}) == {"a": ["t-0"], "b": []}

    def test_static_members_come_first_by_their_instance(self) -> None:
        subscribers = [
            Subscriber("zz", "1", ("t",)),
            Subscriber("aa", None, ("t",)),
            Subscriber("mm", "0", ("t",)),
        ]
        found = assign(subscribers, {"t": 3})
        assert found == {
            "mm": [TopicPartition("t", 0)],
            "zz": [TopicPartition("t", 1)],
            "aa": [TopicPartition("t", 2)],
        }


class TestConsumerProtocol:
    def test_round_trips(self) -> None:
        partitions = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
        assert decode_assignment(encode_assignment(partitions)) == partitions
        assert decode_subscription(encode_subscription(["b", "a"], partitions)) == ("a", "b")
        assert decode_assignment(b"") == ()

    def test_a_newer_version_is_read_as_far_as_we_know_it(self) -> None:
        future = b"\0\x63" + encode_assignment([AT])[2:] + b"something new"
        assert decode_assignment(future) == (AT,)

    @pytest.mark.parametrize("data", [b"\0", b"\xff\xff", b"\0\1\0\0\0\7"])
    def test_damage_is_a_protocol_error(self, data: bytes) -> None:
        with pytest.raises(ProtocolError):
            decode_assignment(data)


def fetched(*batches: bytes | bytearray, aborted: tuple[AbortedTransaction, ...] = ()) -> Fetched:
    return Fetched(memoryview(b"".join(batches)), 100, 100, 0, aborted)


def batch(base: int, *values: str, attributes: int = 0, producer_id: int = -1) -> bytearray:
    records = [RecordInput(None, value.encode(), 5) for value in values]
    return build_batch(records, base_offset=base, attributes=attributes, producer_id=producer_id, leader_epoch=3)


class TestReadOut:
    def test_records_before_the_offset_and_a_torn_batch_are_left_out(self) -> None:
        data = fetched(batch(0, "a", "b"), batch(2, "c", "d"), batch(4, "e")[:-1])
        found = read_out(AT, data, 1, READ_UNCOMMITTED)
        assert [(record.offset, record.value) for record in found.records] == [(1, b"b"), (2, b"c"), (3, b"d")]
        assert found.next_offset == 4
        assert found.records[0].leader_epoch == 3

    def test_an_empty_answer_moves_nothing(self) -> None:
        assert read_out(AT, fetched(), 7, READ_UNCOMMITTED) == ([], 7)

    def test_a_damaged_batch_is_refused(self) -> None:
        data = batch(0, "a")
        data[-1] ^= 1
        with pytest.raises(ProtocolError, match="t-0: the batch at offset 0 does not match its checksum"):
            read_out(AT, fetched(data), 0, READ_UNCOMMITTED)

    def test_markers_are_never_shown_and_aborted_records_only_when_not_asked_to_hide_them(self) -> None:
        data = fetched(
            batch(0, "lost", attributes=TRANSACTIONAL, producer_id=9),
            batch(1, "kept", attributes=TRANSACTIONAL, producer_id=8),
            batch(2, "plain"),
            batch(3, "abort", attributes=TRANSACTIONAL | CONTROL, producer_id=9),
            batch(4, "again", attributes=TRANSACTIONAL, producer_id=9),
            batch(5, "commit", attributes=TRANSACTIONAL | CONTROL, producer_id=9),
            batch(6, "commit", attributes=TRANSACTIONAL | CONTROL, producer_id=8),
            aborted=(AbortedTransaction(9, 0),),
        )
        committed = read_out(AT, data, 0, READ_COMMITTED)
        assert [record.value for record in committed.records] == [b"kept", b"plain", b"again"]
        assert committed.next_offset == 7
        everything = read_out(AT, data, 0, READ_UNCOMMITTED)
        assert [record.value for record in everything.records] == [b"lost", b"kept", b"plain", b"again"]


class TestAccumulator:
    @staticmethod
    def pending(size: int) -> Pending:
        loop = asyncio.new_event_loop()
        try:
            return Pending(RecordInput(None, b""), size, loop.create_future())
        finally:
            loop.close()

    def test_a_batch_is_due_when_it_is_old_or_full_or_flushed(self) -> None:
        queue = Accumulator(batch_bytes=100, linger_s=5.0)
        assert queue.wait_s(0.0, flush=True) is None
        queue.add(self.pending(60), 10.0)
        assert queue.wait_s(12.0, flush=False) == 3.0
        assert queue.wait_s(20.0, flush=False) == 0
        assert queue.wait_s(12.0, flush=True) == 0
        queue.add(self.pending(60), 12.0)
        assert queue.wait_s(12.0, flush=False) == 0

    def test_batches_are_cut_at_the_bound_in_order(self) -> None:
        queue = Accumulator(batch_bytes=100, linger_s=5.0)
        sizes = [40, 40, 40, 300, 10]
        for size in sizes:
            queue.add(self.pending(size), 0.0)
        taken = []
        while len(queue):
            taken.append([pending.size for pending in queue.take(1.0)])
        assert taken == [[40, 40], [40], [300], [10]]
