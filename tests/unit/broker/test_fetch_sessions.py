"""Incremental fetch sessions: one test per rule of KIP-227, and of what KIP-516 added for topic ids."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.broker.fetch_sessions import Fetching, FetchSessions
from tidelog.broker.ledger import Resource
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.uuids import ZERO_UUID

EVICTION_S = 120.0


def topics(**partitions: list[int]) -> list[FetchRequest.FetchTopic]:
    return [
        FetchRequest.FetchTopic(topic=name, partitions=[FetchRequest.FetchPartition(partition=p) for p in indexes])
        for name, indexes in partitions.items()
    ]


def topics_by_id(topic_id: bytes, *indexes: int) -> list[FetchRequest.FetchTopic]:
    partitions = [FetchRequest.FetchPartition(partition=index) for index in indexes]
    return [FetchRequest.FetchTopic(topic="", topic_id=topic_id, partitions=partitions)]


def forget(**partitions: list[int]) -> list[FetchRequest.ForgottenTopic]:
    return [FetchRequest.ForgottenTopic(topic=name, partitions=indexes) for name, indexes in partitions.items()]


class Log:
    """What the partitions answer; a test changes it."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int], bytes] = {}
        self.high_watermarks: dict[tuple[str, int], int] = {}
        self.errors: dict[tuple[str, int], ErrorCode] = {}

    def answer(self, fetching: Fetching) -> FetchResponse:
        results = []
        for partition in fetching.partitions:
            at = (partition.topic, partition.index)
            code = self.errors.get(at, ErrorCode.NONE)
            results.append(
                FetchResponse.PartitionData(
                    partition_index=partition.index,
                    error_code=code,
                    high_watermark=-1 if code else self.high_watermarks.get(at, 0),
                    log_start_offset=-1 if code else 0,
                    records=self.records.get(at, b""),
                )
            )
        return fetching.respond(results)


class Client:
    """The client's side: remembers its session and counts its epoch."""

    def __init__(self, sessions: FetchSessions, log: Log, version: int = 12) -> None:
        self.sessions, self.log, self.version = sessions, log, version
        self.session_id = self.epoch = 0

    def begin(
        self,
        wanted: list[FetchRequest.FetchTopic] | None = None,
        forgotten: list[FetchRequest.ForgottenTopic] | None = None,
        now_s: float = 0.0,
    ) -> Fetching | ErrorCode:
        request = FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=wanted or [],
            forgotten_topics_data=forgotten or [],
        )
        return self.sessions.begin(request, self.version, now_s)

    def fetch(
        self,
        wanted: list[FetchRequest.FetchTopic] | None = None,
        forgotten: list[FetchRequest.ForgottenTopic] | None = None,
        now_s: float = 0.0,
    ) -> list[tuple[str, int]]:
        fetching = self.begin(wanted, forgotten, now_s)
        assert isinstance(fetching, Fetching), fetching
        response = self.log.answer(fetching)
        self.session_id = response.session_id
        self.epoch = self.epoch + 1 if response.session_id else 0
        return [(topic.topic, data.partition_index) for topic in response.responses for data in topic.partitions]


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(Random(1), slots_max=3, eviction_s=EVICTION_S)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def client(sessions: FetchSessions, log: Log) -> Client:
    return Client(sessions, log)


# epochs


def test_epoch_0_makes_a_session_and_answers_every_partition(client: Client, sessions: FetchSessions) -> None:
    assert client.fetch(topics(a=[0, 1], b=[0])) == [("a", 0), ("a", 1), ("b", 0)]
    assert client.session_id > 0
    assert len(sessions) == 1


def test_epoch_minus_1_makes_none_and_closes_the_one_that_is_named(client: Client, sessions: FetchSessions) -> None:
    client.fetch(topics(a=[0]))
    client.epoch = -1
    assert client.fetch(topics(a=[0], b=[0])) == [("a", 0), ("b", 0)]
    assert client.session_id == 0
    assert len(sessions) == 0


def test_epoch_0_with_an_id_replaces_that_session(client: Client, sessions: FetchSessions) -> None:
    client.fetch(topics(a=[0]))
    old, client.epoch = client.session_id, 0
    assert client.fetch(topics(b=[0])) == [("b", 0)]
    assert client.session_id != old
    assert len(sessions) == 1


def test_versions_without_sessions_get_none(sessions: FetchSessions, log: Log) -> None:
    client = Client(sessions, log, version=6)
    assert client.fetch(topics(a=[0])) == [("a", 0)]
    assert (client.session_id, len(sessions)) == (0, 0)


def test_each_request_must_carry_the_next_epoch(client: Client) -> None:
    client.fetch(topics(a=[0]))
    for epoch in (2, 5):
        client.epoch = epoch
        assert client.begin() is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.epoch = 1
    client.fetch()
    client.epoch = 1
    assert client.begin() is ErrorCode.INVALID_FETCH_SESSION_EPOCH, "a repeated request is noticed"
    client.epoch = 2
    assert isinstance(client.begin(), Fetching)


def test_the_epoch_wraps_to_1(client: Client, sessions: FetchSessions) -> None:
    client.fetch(topics(a=[0]))
    sessions._sessions[client.session_id].epoch = client.epoch = 2**31 - 1
    client.fetch()
    client.epoch = 1
    assert isinstance(client.begin(), Fetching)


def test_an_unknown_session_is_refused(client: Client) -> None:
    client.session_id, client.epoch = 12345, 1
    assert client.begin() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# incremental answers


def test_an_answer_holds_only_what_changed(client: Client, log: Log) -> None:
    client.fetch(topics(a=[0, 1, 2]))
    assert client.fetch() == []
    log.high_watermarks["a", 1] = 5
    assert client.fetch() == [("a", 1)]
    assert client.fetch() == []
    log.records["a", 2] = b"data"
    assert client.fetch() == [("a", 2)]
    assert client.fetch() == [("a", 2)], "as long as there is data"


def test_what_was_answered_in_the_full_answer_is_remembered(client: Client, log: Log) -> None:
    log.high_watermarks["a", 0] = 7
    client.fetch(topics(a=[0]))
    assert client.fetch() == []


def test_a_partition_with_an_error_is_answered_each_time_and_once_more_when_it_is_over(
    client: Client, log: Log
) -> None:
    client.fetch(topics(a=[0, 1]))
    log.errors["a", 0] = ErrorCode.FENCED_LEADER_EPOCH
    assert client.fetch() == [("a", 0)]
    assert client.fetch() == [("a", 0)]
    del log.errors["a", 0]
    assert client.fetch() == [("a", 0)]
    assert client.fetch() == []


def test_a_diverging_epoch_is_a_change(client: Client) -> None:
    client.fetch(topics(a=[0]))
    fetching = client.begin()
    assert isinstance(fetching, Fetching)
    diverging = FetchResponse.EpochEndOffset(epoch=1, end_offset=3)
    data = FetchResponse.PartitionData(high_watermark=0, log_start_offset=0, records=b"", diverging_epoch=diverging)
    assert len(fetching.respond([data]).responses) == 1


def test_a_moved_log_start_is_a_change(client: Client) -> None:
    client.fetch(topics(a=[0]))
    fetching = client.begin()
    assert isinstance(fetching, Fetching)
    data = FetchResponse.PartitionData(high_watermark=0, log_start_offset=4, records=b"")
    assert len(fetching.respond([data]).responses) == 1


# changing the set


def test_a_request_adds_and_updates_partitions(client: Client) -> None:
    client.fetch(topics(a=[0]))
    assert client.fetch(topics(b=[0])) == [("b", 0)], "a new one is answered, an old one only if it changed"
    moved = [FetchRequest.FetchTopic(topic="a", partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=77)])]
    client.fetch(moved)
    fetching = client.begin()
    assert isinstance(fetching, Fetching)
    assert {(p.topic, p.index): p.wanted.fetch_offset for p in fetching.partitions} == {("a", 0): 77, ("b", 0): 0}


def test_forgotten_partitions_are_read_no_more(client: Client, log: Log) -> None:
    client.fetch(topics(a=[0, 1], b=[0]))
    log.records |= {("a", 0): b"x", ("a", 1): b"x", ("b", 0): b"x"}
    assert client.fetch(forgotten=forget(a=[0], c=[9])) == [("a", 1), ("b", 0)]


def test_what_is_named_and_forgotten_in_one_request_is_forgotten(client: Client) -> None:
    """As Apache Kafka applies them: first what is named, then what is forgotten."""
    client.fetch(topics(a=[0, 1]))
    client.fetch(topics(a=[0]), forget(a=[0]))
    fetching = client.begin()
    assert isinstance(fetching, Fetching)
    assert [partition.index for partition in fetching.partitions] == [1]


def test_a_session_without_partitions_ends(client: Client, sessions: FetchSessions) -> None:
    client.fetch(topics(a=[0]))
    assert client.fetch(forgotten=forget(a=[0])) == []
    assert client.session_id == 0, "the client must begin anew"
    assert len(sessions) == 0


def test_a_partition_may_be_forgotten_while_an_earlier_fetch_waits(client: Client, log: Log) -> None:
    """Pipelined on one connection: the first is parked, the second forgets what the first will be woken by."""
    client.fetch(topics(a=[0, 1]))
    parked = client.begin()
    client.epoch += 1
    client.fetch(forgotten=forget(a=[0]))
    log.records["a", 0] = b"wakes the first"
    assert isinstance(parked, Fetching)
    answer = log.answer(parked)
    assert [data.records for topic in answer.responses for data in topic.partitions] == [b"wakes the first"]
    fetching = client.begin()
    assert isinstance(fetching, Fetching) and [p.index for p in fetching.partitions] == [1]


# rotation


def test_those_that_had_data_go_to_the_end(client: Client, log: Log) -> None:
    """A full answer must not starve the others."""
    client.fetch(topics(a=[0, 1, 2]))
    log.records["a", 0] = b"x"
    client.fetch()
    log.records = {("a", index): b"x" for index in range(3)}
    assert client.fetch() == [("a", 1), ("a", 2), ("a", 0)]


def test_consecutive_partitions_of_a_topic_are_one_entry(client: Client, log: Log) -> None:
    client.fetch(topics(a=[0, 1], b=[0]))
    log.records = {("a", 0): b"x"}
    client.fetch()
    log.records = {("a", 0): b"x", ("a", 1): b"x", ("b", 0): b"x"}
    fetching = client.begin()
    assert isinstance(fetching, Fetching)
    answer = log.answer(fetching)
    assert [(topic.topic, len(topic.partitions)) for topic in answer.responses] == [("a", 1), ("b", 1), ("a", 1)]


# slots


def test_without_a_free_slot_a_client_fetches_in_full(sessions: FetchSessions, log: Log) -> None:
    for _ in range(3):
        Client(sessions, log).fetch(topics(a=[0]))
    fourth = Client(sessions, log)
    assert fourth.fetch(topics(a=[0]), now_s=EVICTION_S) == [("a", 0)]
    assert (fourth.session_id, fourth.epoch, len(sessions)) == (0, 0, 3)


def test_who_was_idle_for_two_minutes_makes_room(sessions: FetchSessions, log: Log) -> None:
    clients = [Client(sessions, log) for _ in range(3)]
    for client in clients:
        client.fetch(topics(a=[0]))
    clients[0].fetch(now_s=60)
    newcomer = Client(sessions, log)
    newcomer.fetch(topics(a=[0]), now_s=EVICTION_S + 1)
    assert newcomer.session_id > 0
    assert len(sessions) == 3
    assert isinstance(clients[0].begin(now_s=EVICTION_S + 1), Fetching)
    assert clients[1].begin() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the one that was idle longest"


def test_a_larger_session_replaces_a_smaller_one_that_has_had_its_time(sessions: FetchSessions, log: Log) -> None:
    clients = [Client(sessions, log) for _ in range(3)]
    for client, indexes in zip(clients, ([0, 1, 2], [0], [0, 1]), strict=True):
        client.fetch(topics(a=indexes))
    late_s = EVICTION_S + 1
    for client in clients:
        client.fetch(now_s=late_s)
    same_size = Client(sessions, log)
    same_size.fetch(topics(b=[0]), now_s=late_s)
    assert same_size.session_id == 0
    larger = Client(sessions, log)
    larger.fetch(topics(b=[0, 1]), now_s=late_s)
    assert larger.session_id > 0
    assert clients[1].begin() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the smallest"
    largest = Client(sessions, log)
    largest.fetch(topics(b=list(range(9))), now_s=late_s)
    assert clients[2].begin() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    another = Client(sessions, log)
    another.fetch(topics(c=[0, 1, 2]), now_s=late_s)
    assert another.session_id == 0, "young sessions are left alone, however small"


def test_no_slots_no_sessions(log: Log) -> None:
    client = Client(FetchSessions(Random(1), slots_max=0), log)
    assert client.fetch(topics(a=[0])) == [("a", 0)]
    assert client.session_id == 0


# topic ids


def test_a_session_by_names_and_one_by_ids_do_not_mix(sessions: FetchSessions, log: Log) -> None:
    by_name = Client(sessions, log, version=12)
    by_name.fetch(topics(a=[0]))
    by_name.version = 13
    assert by_name.begin() is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert by_name.begin(topics_by_id(bytes(range(16)), 0)) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    by_id = Client(sessions, log, version=13)
    by_id.fetch(topics_by_id(bytes(range(16)), 0))
    by_id.version = 12
    assert by_id.begin() is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_partitions_by_id_are_kept_apart_by_their_ids(sessions: FetchSessions, log: Log) -> None:
    """A topic that was deleted and made again has another id: forgetting the old one leaves the new one."""
    client = Client(sessions, log, version=13)
    old, new = bytes(range(16)), bytes(range(1, 17))
    client.fetch(topics_by_id(old, 0))
    gone = [FetchRequest.ForgottenTopic(topic="", topic_id=old, partitions=[0])]
    client.fetch(topics_by_id(new, 0), gone)
    fetching = client.begin()
    assert isinstance(fetching, Fetching)
    assert [partition.topic_id for partition in fetching.partitions] == [new]
    assert ZERO_UUID not in (old, new)


def test_the_partitions_of_all_sessions_have_a_limit(log: Log) -> None:
    remembered = Resource("session_partitions", 5)
    sessions = FetchSessions(Random(1), slots_max=10, remembered=remembered)
    first, second, third = (Client(sessions, log) for _ in range(3))
    first.fetch(topics(a=[0, 1, 2]))
    second.fetch(topics(a=[0, 1]))
    assert remembered.used == 5
    assert third.fetch(topics(b=[0])) == [("b", 0)]
    assert third.session_id == 0, "served, but nothing is remembered"
    assert second.begin(topics(b=[0])) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (remembered.used, remembered.refused, len(sessions)) == (3, 2, 1)
    first.epoch = -1
    first.fetch(topics(a=[0]))
    assert remembered.used == 0
