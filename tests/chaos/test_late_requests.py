"""A request that was on its way for too long. A client of version 1 keeps its epoch from one transaction to the next,
so nothing in a late EndTxn or AddPartitionsToTxn says which transaction it belongs to. The proxy holds it back until
the client has dialled again, repeated it and gone on to its next transaction.

On Tidelog it touches nothing. On Apache Kafka it does; the tests say what, so that we hear of it when that changes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from tests.chaos.brokers import Lab
from tests.chaos.old_client import OldClient, add_answer, end_answer, last_stable_offset, state_of
from tests.chaos.proxy import Trap
from tests.chaos.reading import read_all
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from tools import apache

ADD = ApiKey.ADD_PARTITIONS_TO_TXN
END = ApiKey.END_TXN
COMMITTED_S = 30.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["tidelog", pytest.param("apache", marks=pytest.mark.java)])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if request.param == "apache" and (missing := apache.why_not()):
        pytest.skip(f"no Apache Kafka to compare with: {missing}")
    with Lab(request.param, tmp_path_factory.mktemp(request.param)) as lab:
        yield lab


@pytest.fixture
def client(lab: Lab) -> Iterator[OldClient]:
    number = next(_numbers)
    topic = f"late-{number}"
    lab.create_topic(topic, 2)
    client = OldClient(lab.address, f"id-{number}", topic)
    client.init()
    yield client
    client.close()


def flawed(lab: Lab) -> bool:
    return lab.node.name == "apache"


def until_committed(lab: Lab, transactional_id: str) -> None:
    """EndTxn is answered before the markers are written; a reader of committed data sees nothing until they are."""
    deadline = time.monotonic() + COMMITTED_S
    while (state := state_of(lab.direct, transactional_id)[0]) != "CompleteCommit":
        assert time.monotonic() < deadline, f"{transactional_id} is {state} after {COMMITTED_S:.0f} s"
        time.sleep(0.01)


def first_transaction_with_its_end_held_back(lab: Lab, client: OldClient, *, commit: bool) -> Trap:
    assert client.add(0) == ErrorCode.NONE
    client.produce(0, "one")
    trap = lab.proxy.catch("hold", END)
    client.wire.send(client.end_request(commit=commit), 1)
    trap.wait()
    client.dial_again()
    assert client.end(commit=commit) == ErrorCode.NONE
    return trap


def test_a_late_commit_does_not_commit_the_next_transaction(lab: Lab, client: OldClient) -> None:
    trap = first_transaction_with_its_end_held_back(lab, client, commit=True)
    assert client.add(0) == ErrorCode.NONE
    offset = client.produce(0, "two")
    trap.release()
    late = end_answer(trap.wait_answered())
    if flawed(lab):
        assert late == ErrorCode.NONE
        until_committed(lab, client.transactional_id)
        assert read_all(lab.direct, [f"{client.topic}/0"]) == {f"{client.topic}/0": ["one", "two"]}
        assert client.end(commit=False) == ErrorCode.INVALID_TXN_STATE, "what it wanted to abort is committed"
        return
    assert late != ErrorCode.NONE
    assert last_stable_offset(lab.direct, client.topic) == offset, "the second transaction is open"
    assert client.end(commit=False) == ErrorCode.NONE
    assert read_all(lab.direct, [f"{client.topic}/0"]) == {f"{client.topic}/0": ["one"]}


def test_a_late_abort_does_not_abort_the_next_transaction(lab: Lab, client: OldClient) -> None:
    trap = first_transaction_with_its_end_held_back(lab, client, commit=False)
    assert client.add(0) == ErrorCode.NONE
    client.produce(0, "two")
    trap.release()
    late = end_answer(trap.wait_answered())
    if flawed(lab):
        assert late == ErrorCode.NONE
        assert client.end(commit=True) == ErrorCode.INVALID_TXN_STATE, "what it wanted to commit is aborted"
        return
    assert late != ErrorCode.NONE
    assert client.end(commit=True) == ErrorCode.NONE
    until_committed(lab, client.transactional_id)
    assert read_all(lab.direct, [f"{client.topic}/0"]) == {f"{client.topic}/0": ["two"]}


def test_a_repeated_commit_does_not_commit_the_next_transaction(lab: Lab, client: OldClient) -> None:
    """The first one was worked on; its answer did not come through, and the network delivers it once more."""
    assert client.add(0) == ErrorCode.NONE
    client.produce(0, "one")
    trap = lab.proxy.catch("copy", END)
    client.wire.send(client.end_request(commit=True), 1)
    trap.wait_answered()
    client.dial_again()
    assert client.end(commit=True) == ErrorCode.NONE
    assert client.add(0) == ErrorCode.NONE
    client.produce(0, "two")
    trap.send_again()
    late = end_answer(trap.wait_answered())
    if flawed(lab):
        assert late == ErrorCode.NONE
        until_committed(lab, client.transactional_id)
        assert read_all(lab.direct, [f"{client.topic}/0"]) == {f"{client.topic}/0": ["one", "two"]}
        return
    assert late != ErrorCode.NONE
    assert client.end(commit=False) == ErrorCode.NONE
    assert read_all(lab.direct, [f"{client.topic}/0"]) == {f"{client.topic}/0": ["one"]}


def test_a_late_add_begins_no_transaction(lab: Lab, client: OldClient) -> None:
    trap = lab.proxy.catch("hold", ADD)
    client.wire.send(client.add_request(0), 0)
    trap.wait()
    client.dial_again()
    assert client.add(0) == ErrorCode.NONE
    client.produce(0, "one")
    assert client.end(commit=True) == ErrorCode.NONE
    # A next transaction must wait until the markers are written.
    until_committed(lab, client.transactional_id)
    trap.release()
    late = add_answer(trap.wait_answered())
    state = state_of(lab.direct, client.transactional_id)
    if flawed(lab):
        assert late == ErrorCode.NONE
        assert state == ("Ongoing", {(client.topic, 0)}), "a transaction that nobody has begun, until its time-out"
        return
    assert late != ErrorCode.NONE
    assert state == ("CompleteCommit", set())


def test_a_late_add_does_not_add_to_the_next_transaction(lab: Lab, client: OldClient) -> None:
    trap = lab.proxy.catch("hold", ADD)
    client.wire.send(client.add_request(1), 0)
    trap.wait()
    client.dial_again()
    assert client.add(1) == ErrorCode.NONE
    client.produce(1, "one")
    assert client.end(commit=True) == ErrorCode.NONE
    assert client.add(0) == ErrorCode.NONE
    trap.release()
    late = add_answer(trap.wait_answered())
    state, partitions = state_of(lab.direct, client.transactional_id)
    assert state == "Ongoing"
    if flawed(lab):
        assert late == ErrorCode.NONE
        assert partitions == {(client.topic, 0), (client.topic, 1)}
        return
    assert late != ErrorCode.NONE
    assert partitions == {(client.topic, 0)}


def test_what_is_repeated_on_the_newest_connection_is_answered_as_before(lab: Lab, client: OldClient) -> None:
    """The rule must not refuse the client itself: after each cut it repeats what it got no answer to."""
    for number in range(3):
        trap = lab.proxy.catch("lose-answer", ADD)
        client.wire.send(client.add_request(0), 0)
        trap.wait_answered()
        with pytest.raises(ConnectionError):
            client.wire.receive(AddPartitionsToTxnResponse, 0)
        client.dial_again()
        assert client.add(0) == ErrorCode.NONE
        client.produce(0, f"v{number}")
        trap = lab.proxy.catch("lose-answer", END)
        client.wire.send(client.end_request(commit=True), 1)
        trap.wait_answered()
        client.dial_again()
        assert client.end(commit=True) == ErrorCode.NONE
    until_committed(lab, client.transactional_id)
    assert read_all(lab.direct, [f"{client.topic}/0"]) == {f"{client.topic}/0": ["v0", "v1", "v2"]}


def test_librdkafka_with_a_commit_that_comes_late(lab: Lab) -> None:
    number = next(_numbers)
    topic = f"late-{number}"
    lab.create_topic(topic)
    config = {"bootstrap.servers": lab.address, "transactional.id": f"id-{number}", "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"one")
    producer.flush(30)
    trap = lab.proxy.catch("hold", END)
    committing = threading.Thread(target=producer.commit_transaction, args=(30,))
    committing.start()
    trap.wait()
    trap.hang_up()
    committing.join()
    producer.begin_transaction()
    producer.produce(topic, b"two")
    producer.flush(30)
    trap.release()
    late = end_answer(trap.wait_answered())
    if flawed(lab):
        assert late == ErrorCode.NONE
        with pytest.raises(KafkaException, match=r"STATE|FATAL"):
            producer.abort_transaction(30)
        until_committed(lab, f"id-{number}")
        assert read_all(lab.direct, [f"{topic}/0"]) == {f"{topic}/0": ["one", "two"]}
        return
    assert late != ErrorCode.NONE
    producer.abort_transaction(30)
    assert read_all(lab.direct, [f"{topic}/0"]) == {f"{topic}/0": ["one"]}
