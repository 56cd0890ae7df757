"""A data directory goes from Tidelog to Apache Kafka 4.3.1 and back, and once more there: each shows what the other
stored, goes on with it, and keeps what it cannot use itself."""

from __future__ import annotations

import time

import pytest

from tests.scenarios.apache.content import HOUR_MS, IdempotentProducer, fill
from tests.scenarios.apache.guarded import AUTHORIZER, OPEN_TRANSACTION, guard, transact, wait_for_guards
from tests.scenarios.apache.observing import Observed, observe
from tests.scenarios.apache.stages import Directory, Stay, at_apache, at_tidelog, times, work
from tidelog.protocol.errors import ErrorCode
from tidelog.testing import Broker
from tools.apache import why_not

LEFT_BY_TIDELOG = "left open by tidelog"
LEFT_BY_APACHE = "left open by apache"
pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Made and filled by Tidelog, after a clean stop."""
    if missing := why_not():
        pytest.skip(f"no Apache Kafka to exchange directories with: {missing}")
    home = tmp_path_factory.mktemp("exchange")
    data = [home / "data"]
    start_ms = int(time.time() * 1000) - HOUR_MS
    with at_tidelog(data) as broker:
        bootstrap = broker.bootstrap_servers
        fill(bootstrap, start_ms)
        producer = IdempotentProducer(bootstrap)
        assert [producer.send(bootstrap, number, start_ms) for number in range(3)] == [
            (ErrorCode.NONE, number) for number in range(3)
        ]
        transact(bootstrap, "codec-snappy", "of tidelog", "cac")
        transact(bootstrap, "codec-zstd", LEFT_BY_TIDELOG, "cao")
        left = observe(bootstrap, times=times(start_ms))
    return Directory(home, data, start_ms, producer, left)


@pytest.fixture(scope="module")
def apache(directory: Directory) -> Stay:
    with at_apache(directory.home / "first", directory.data, properties=AUTHORIZER) as kafka:
        bootstrap = kafka.bootstrap_servers
        arrived = observe(bootstrap, times=directory.times)
        sent = work(bootstrap, "apache", directory, 3)
        transact(bootstrap, "codec-gzip", "ended", "cac")
        transact(bootstrap, "codec-lz4", OPEN_TRANSACTION, "cao")
        transact(bootstrap, "codec-zstd", LEFT_BY_TIDELOG, "c")
        transact(bootstrap, "codec-zstd", LEFT_BY_APACHE, "o")
        guard(bootstrap)
        return Stay(arrived, observe(bootstrap, times=directory.times), sent, wait_for_guards(bootstrap))


@pytest.fixture(scope="module")
def back(directory: Directory, apache: Stay) -> Stay:
    # Every change of the metadata makes a snapshot: what Tidelog only carries has to come back out of one.
    config = {"tidelog.acls.unenforced.allow": "true", "metadata.log.max.record.bytes.between.snapshots": "1"}
    with at_tidelog(directory.data, config) as broker:
        bootstrap = broker.bootstrap_servers
        arrived = observe(bootstrap, times=directory.times)
        sent = work(bootstrap, "tidelog", directory, 4)
        transact(bootstrap, "codec-zstd", LEFT_BY_APACHE, "ac")
        left = observe(bootstrap, times=directory.times)
    return Stay(arrived, left, sent, log=broker.log)


@pytest.fixture(scope="module")
def apache_again(directory: Directory, back: Stay) -> Stay:
    with at_apache(directory.home / "second", directory.data, properties=AUTHORIZER) as kafka:
        bootstrap = kafka.bootstrap_servers
        arrived = observe(bootstrap, times=directory.times)
        found = wait_for_guards(bootstrap)
        sent = work(bootstrap, "apache-again", directory, 5)
        transact(bootstrap, "codec-lz4", OPEN_TRANSACTION, "c")
        return Stay(arrived, observe(bootstrap, times=directory.times), sent, found)


def test_what_tidelog_left_has_one_of_each(directory: Directory) -> None:
    """The comparison is worth as much as what there is to compare."""
    data, left = directory.data[0], directory.left
    segments = {name: len(list((data / f"{name}-0").glob("*.log"))) for name in ("segments", "trimmed", "plain")}
    assert segments == {"segments": 6, "trimmed": 6, "plain": 1}
    assert (left.offsets["trimmed", 0][-2][0], left.offsets["beheaded", 0][-2][0]) == (7, 52)
    assert "gone" not in left.topics
    assert left.groups["static"].state == "Stable"
    assert left.committed["simple"]["plain", 2].offset == 11
    assert left.broker_configs["1"] == [("log.retention.ms", "777777777"), ("log.segment.bytes", "66666666")]


@pytest.mark.parametrize("field", Observed._fields)
def test_apache_shows_what_tidelog_stored(directory: Directory, apache: Stay, field: str) -> None:
    assert getattr(apache.arrived, field) == getattr(directory.left, field)


@pytest.mark.parametrize("field", Observed._fields)
def test_tidelog_shows_what_apache_stored(apache: Stay, back: Stay, field: str) -> None:
    assert getattr(back.arrived, field) == getattr(apache.left, field)


@pytest.mark.parametrize("field", Observed._fields)
def test_apache_shows_it_all_again(back: Stay, apache_again: Stay, field: str) -> None:
    assert getattr(apache_again.arrived, field) == getattr(back.left, field)


def test_the_idempotent_producer_goes_on_through_all_of_them(apache: Stay, back: Stay, apache_again: Stay) -> None:
    """Its last batch is known as a duplicate, its next is taken: each reads the other's producer snapshots."""
    assert apache.sent == [(ErrorCode.NONE, 2), (ErrorCode.NONE, 3)]
    assert back.sent == [(ErrorCode.NONE, 3), (ErrorCode.NONE, 4)]
    assert apache_again.sent == [(ErrorCode.NONE, 4), (ErrorCode.NONE, 5)]


def test_readers_of_committed_records_see_no_aborted_and_no_open_ones(apache: Stay, back: Stay) -> None:
    ended = [record.value.decode() for record in back.arrived.records["codec-gzip", 0][50:] if record.value]
    assert ended == [f"ended {number} c {record}" for number in (0, 2) for record in range(4)]
    open_ones = [record.value.decode() for record in back.arrived.records["codec-lz4", 0][50:] if record.value]
    assert open_ones == [f"{OPEN_TRANSACTION} 0 c {record}" for record in range(4)]


def test_the_transaction_that_was_left_open_is_ended_by_apache_in_the_end(apache_again: Stay) -> None:
    """Its state was in `__transaction_state` all the time; the next of its name aborts it."""
    found = [record.value.decode() for record in apache_again.left.records["codec-lz4", 0][54:] if record.value]
    assert found == [f"{OPEN_TRANSACTION} 0 c {record}" for record in range(4)]


def test_each_ends_what_the_other_has_left_open(directory: Directory, apache: Stay, back: Stay) -> None:
    def read(observed: Observed, topic: str) -> list[str]:
        return [record.value.decode() for record in observed.records[topic, 0][50:] if record.value]

    def sent(name: str, number: int) -> list[str]:
        return [f"{name} {number} c {record}" for record in range(4)]

    assert read(apache.arrived, "codec-snappy") == [*sent("of tidelog", 0), *sent("of tidelog", 2)]
    assert read(directory.left, "codec-zstd") == sent(LEFT_BY_TIDELOG, 0)
    by_apache = sent(LEFT_BY_TIDELOG, 0) * 2
    assert read(apache.left, "codec-zstd") == by_apache
    assert read(back.left, "codec-zstd") == [*by_apache, *sent(LEFT_BY_APACHE, 1)]


def test_tidelog_keeps_acls_quotas_and_credentials_for_apache(apache: Stay, apache_again: Stay) -> None:
    assert len(apache.guards) == 6
    assert apache_again.guards == apache.guards


def test_who_serves_acls_without_enforcing_them_is_warned_and_has_to_ask_for_it(
    directory: Directory, back: Stay
) -> None:
    line = "the metadata holds 1 client quota, 3 ACLs, 2 SCRAM credentials: kept for Apache Kafka"
    assert line in back.log
    refused = Broker(process=True, data=directory.data[0])
    with pytest.raises(RuntimeError, match=r"holds 3 ACLs, .*set tidelog\.acls\.unenforced\.allow=true"):
        refused.start()
