"""Apache's command line tools on transactions and on groups of both protocols: what they print is what they print of
Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.clients.adapters.java import Java, JavaConsumer
from tests.clients.adapters.java_transactions import JavaProducer
from tests.clients.matrix import COMMANDS, JAVA_MARKS
from tests.clients.model import ConsumerOptions, wait_for
from tests.clients.served import Served

pytestmark = list(JAVA_MARKS)

Table = list[dict[str, str]]
Run = Callable[[str], str]


@pytest.fixture
def run(java: Java, broker: Served) -> Run:
    def run(line: str) -> str:
        command, *arguments = line.split()
        code, text = java.tool(COMMANDS[command], "--bootstrap-server", broker.bootstrap_servers, *arguments)
        assert code == 0, f"{line} ended with {code}:\n{text}"
        return text

    return run


@pytest.fixture
def topic(java: Java, name: str) -> str:
    java.create_topic(name, partitions=2)
    return name


@pytest.fixture
def producer(java: Java, topic: str) -> Iterator[JavaProducer]:
    """In a transaction that has written one record."""
    with closing(JavaProducer(java.jvm, topic)) as producer:
        producer.init()
        producer.begin()
        producer.send((topic, 0), b"x")
        yield producer


def table(text: str) -> Table:
    """The rows by the names in the head line; a column ends where its name, padded, does not."""
    head, *rows = [line for line in text.splitlines() if line.strip()]
    names = head.replace("COORDINATOR (ID)", "COORDINATOR ID").split()
    return [dict(zip(names, row.split(), strict=False)) for row in rows]


def test_list_and_describe_transactions(run: Run, topic: str, producer: JavaProducer) -> None:
    (row,) = [row for row in table(run("kafka-transactions list")) if row["TransactionalId"] == topic]
    assert (row["Coordinator"], row["TransactionState"]) == ("1", "Ongoing")
    assert len(table(run(f"kafka-transactions list --transactional-id-pattern {topic}"))) == 1
    assert table(run(f"kafka-transactions list --transactional-id-pattern {topic}-not")) == []
    (row,) = table(run(f"kafka-transactions describe --transactional-id {topic}"))
    assert (row["TransactionState"], row["TransactionTimeoutMs"]) == ("Ongoing", "60000")
    assert row["TopicPartitions"] == f"{topic}-0"
    (state,) = table(run(f"kafka-transactions describe-producers --topic {topic} --partition 0"))
    assert state["ProducerId"] == row["ProducerId"]
    assert (state["LastSequence"], state["CurrentTransactionStartOffset"]) == ("0", "0")
    assert table(run("kafka-transactions find-hanging --broker-id 1 --max-transaction-timeout 0")) == []


def test_abort_and_terminate(run: Run, topic: str, producer: JavaProducer) -> None:
    run(f"kafka-transactions abort --topic {topic} --partition 0 --start-offset 0")
    (state,) = table(run(f"kafka-transactions describe-producers --topic {topic} --partition 0"))
    assert state["CurrentTransactionStartOffset"] == "None"
    # The coordinator was not asked and holds its transaction for open.
    describe = f"kafka-transactions describe --transactional-id {topic}"
    assert table(run(describe))[0]["TransactionState"] == "Ongoing"
    run(f"kafka-transactions forceTerminateTransaction --transactionalId {topic}")
    wait_for("the end", lambda: table(run(describe))[0]["TransactionState"] in ("CompleteAbort", "Empty"))


@pytest.mark.parametrize(("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")])
def test_describe_groups(run: Run, java: Java, topic: str, protocol: str, assignor: str) -> None:
    describe = f"kafka-consumer-groups --describe --group {topic}"
    with closing(JavaConsumer(java.jvm, ConsumerOptions(group=topic), {"group.protocol": protocol})) as member:
        member.subscribe(topic)
        wait_for("both partitions", lambda: (member.poll(), len(member.assignment()) == 2)[1])
        member.commit({(topic, 0): 0})
        offsets = table(run(describe))
        assert [(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in offsets] == [
            ("0", "0", "0"),
            ("1", "-", "-"),
        ]
        (row,) = table(run(f"{describe} --members --verbose"))
        assert (row["#PARTITIONS"], row["CURRENT-ASSIGNMENT"]) == ("2", f"{topic}:0,1")
        assert row["TARGET-ASSIGNMENT"] == (f"{topic}:0,1" if protocol == "consumer" else "-")
        (row,) = table(run(f"{describe} --state --verbose"))
        assert (row["ASSIGNMENT-STRATEGY"], row["STATE"], row["#MEMBERS"]) == (assignor, "Stable", "1")
        assert (row["GROUP-EPOCH"] == "-") == (protocol == "classic")
        listed = {row["GROUP"]: row for row in table(run("kafka-consumer-groups --list --state --type"))}
        assert (listed[topic]["TYPE"], listed[topic]["STATE"]) == (protocol.capitalize(), "Stable")
        reset = f"kafka-consumer-groups --reset-offsets --group {topic} --topic {topic} --to-earliest --execute"
        assert "can only be reset if the group" in run(reset)
    assert [row["NEW-OFFSET"] for row in table(run(reset))] == ["0", "0"]
    assert "was successful" in run(f"kafka-consumer-groups --delete --group {topic}")


def test_configs_of_a_group_and_features(run: Run, name: str) -> None:
    change = f"kafka-configs --alter --entity-type groups --entity-name {name}"
    run(f"{change} --add-config consumer.session.timeout.ms=50000")
    described = run(f"kafka-configs --describe --entity-type groups --entity-name {name}")
    assert (
        "consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms"
        "=50000, DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}" in described
    )
    features = {line.split()[1]: line.split() for line in run("kafka-features describe").splitlines() if line.strip()}
    for feature, level in (("transaction.version", "2"), ("group.version", "1")):
        assert features[feature][features[feature].index("FinalizedVersionLevel:") + 1] == level
