"""Records become images and deltas: whatever the history, the image is that of a plain model, and the delta tells what
changed between two of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.metadata.histories import histories
from tidelog.controller.decision import encode_record
from tidelog.kernel.errors import TidelogError
from tidelog.metadata.image import MetadataDelta, MetadataImage, TopicImage
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.metadata.replay import _HANDLERS, Replay
from tidelog.metadata.snapshot import image_records
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.schema import message_names

some = settings(max_examples=60)
A, B = b"a" * 16, b"b" * 16


def plain(image: MetadataImage) -> dict[str, Any]:
    """Maps as dictionaries, so that images compare by content and can be kept."""
    topics = {name: (topic.topic_id, dict(topic.partitions)) for name, topic in image.topics.items()}
    configs = {resource: dict(values) for resource, values in image.configs.items()}
    rest = {
        name: dict(getattr(image, name)) for name in ("topic_names", "brokers", "controllers", "features", "carried")
    }
    return {"topics": topics, "configs": configs, "next_producer_id": image.next_producer_id, **rest}


def play(batches: list[list[Any]]) -> tuple[MetadataPublisher, list[MetadataDelta]]:
    publisher = MetadataPublisher()
    offset, deltas = 0, []
    for number, batch in enumerate(batches):
        deltas.append(publisher.apply(batch, offset, number))
        offset += len(batch)
    return publisher, deltas


@some
@given(histories())
def test_batches_are_only_for_commits_the_image_is_that_of_the_records_one_by_one(batches: list[list[Any]]) -> None:
    whole, _ = play(batches)
    single, _ = play([[record] for batch in batches for record in batch])
    assert plain(whole.image) == plain(single.image)
    assert whole.image.offset == single.image.offset == sum(map(len, batches)) - 1
    assert whole.image.epoch == max(len(batches) - 1, 0)


@some
@given(histories())
def test_an_image_that_a_reader_holds_never_changes(batches: list[list[Any]]) -> None:
    publisher = MetadataPublisher()
    held: list[tuple[MetadataImage, dict[str, Any]]] = []
    for batch in batches:
        held.append((publisher.image, copy.deepcopy(plain(publisher.image))))
        publisher.apply(batch, 0, 1)
    for image, as_it_was in held:
        assert plain(image) == as_it_was


@some
@given(histories())
def test_names_and_ids_of_topics_agree(batches: list[list[Any]]) -> None:
    image = play(batches)[0].image
    assert {topic.topic_id: name for name, topic in image.topics.items()} == dict(image.topic_names)
    for name, topic in image.topics.items():
        assert topic.name == name and image.topic_by_id(topic.topic_id) is topic


@some
@given(histories())
def test_a_delta_tells_what_changed(batches: list[list[Any]]) -> None:
    before = MetadataImage()
    for delta, batch in zip(play(batches)[1], batches, strict=True):
        after = delta.after
        assert delta.before == before
        assert all(after.topics[topic.name] == topic for topic in (*delta.created, *delta.changed))
        old, new = set(before.topic_names), set(after.topic_names)
        assert {topic.topic_id for topic in delta.created} == new - old
        assert {topic.topic_id for topic in delta.deleted} >= old - new
        assert all(topic.topic_id not in new for topic in delta.deleted)
        assert all(topic == before.topics[topic.name] for topic in delta.deleted if topic.topic_id in old), (
            "with the partitions that there were: their logs must go"
        )
        moved = {topic_id for topic_id in old & new if before.topic_by_id(topic_id) != after.topic_by_id(topic_id)}
        assert {topic.topic_id for topic in delta.changed} >= moved
        assert {topic.topic_id for topic in delta.changed} <= old & new
        assert [topic.name for topic in delta.created] == sorted(topic.name for topic in delta.created)
        named = {(record.resource_type, record.resource_name) for record in batch if isinstance(record, r.ConfigRecord)}
        assert delta.configs == named
        assert delta.brokers_changed or before.brokers == after.brokers
        assert delta.features_changed or before.features == after.features
        before = after


@some
@given(histories())
def test_what_is_read_from_the_log_is_what_was_decided(batches: list[list[Any]]) -> None:
    """The leader applies records, a restart decodes them: both must end in one image."""
    stored = [[encode_record(record) for record in batch] for batch in batches]
    publisher = MetadataPublisher()
    for values in stored:
        publisher.replay(values, publisher.image.offset + 1, 1)
    assert plain(publisher.image) == plain(play(batches)[0].image)


# one sentence each


def test_a_partition_change_raises_epochs_as_kafka_does() -> None:
    partition = r.PartitionRecord(
        partition_id=0, topic_id=A, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
    )
    publisher, _ = play([[r.TopicRecord(name="t", topic_id=A), partition]])

    def epochs(**fields: Any) -> tuple[int, int, int]:
        publisher.apply([r.PartitionChangeRecord(partition_id=0, topic_id=A, **fields)], 9, 1)
        state = publisher.image.topics["t"].partitions[0]
        return state.leader, state.leader_epoch, state.partition_epoch

    assert epochs(isr=[1]) == (1, 0, 1), "without a leader only the partition's"
    assert epochs(leader=1) == (1, 1, 2), "with one also the leader's, even if it is the same"
    assert epochs(leader=-1, isr=[]) == (-1, 2, 3)


def test_a_topic_that_is_deleted_and_made_again_in_one_batch() -> None:
    old = [r.TopicRecord(name="t", topic_id=A), r.PartitionRecord(partition_id=0, topic_id=A, replicas=[1], isr=[1])]
    again = [r.RemoveTopicRecord(topic_id=A), r.TopicRecord(name="t", topic_id=B)]
    again.append(r.PartitionRecord(partition_id=0, topic_id=B, replicas=[2], isr=[2]))
    _, deltas = play([old, again])
    assert [topic.topic_id for topic in deltas[1].deleted] == [A]
    assert [topic.topic_id for topic in deltas[1].created] == [B]
    assert deltas[1].changed == ()


def test_a_topic_that_grows_and_goes_in_one_batch_is_deleted_as_it_was() -> None:
    old = [r.TopicRecord(name="t", topic_id=A), r.PartitionRecord(partition_id=0, topic_id=A, replicas=[1], isr=[1])]
    grown = r.PartitionRecord(partition_id=1, topic_id=A, replicas=[1], isr=[1])
    _, deltas = play([old, [grown, r.RemoveTopicRecord(topic_id=A)]])
    assert [sorted(topic.partitions) for topic in deltas[1].deleted] == [[0]]


def test_a_deleted_topic_takes_its_configs_with_it_and_no_others() -> None:
    publisher, _ = play(
        [
            [r.TopicRecord(name="t", topic_id=A), r.TopicRecord(name="u", topic_id=B)],
            [r.ConfigRecord(resource_type=2, resource_name=name, name="flush.ms", value="1") for name in "tu"],
            [r.RemoveTopicRecord(topic_id=A)],
        ]
    )
    assert list(publisher.image.configs) == [(2, "u")]


def test_a_config_with_null_is_gone_and_the_last_one_takes_the_resource_with_it() -> None:
    def record(value: str | None) -> r.ConfigRecord:
        return r.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value=value)

    publisher, deltas = play([[record("5")], [record(None)], [record(None)]])
    assert not publisher.image.configs
    assert [delta.configs for delta in deltas] == [frozenset({(4, "")})] * 3


def test_a_feature_at_level_0_is_not_finalised() -> None:
    levels = [r.FeatureLevelRecord(name="group.version", feature_level=level) for level in (1, 0)]
    assert dict(play([levels])[0].image.features) == {}


def test_live_brokers_are_those_that_are_not_fenced() -> None:
    publisher, _ = play([[r.RegisterBrokerRecord(broker_id=broker_id, fenced=True) for broker_id in (3, 1, 2)]])
    for broker_id in (3, 1):
        publisher.apply([r.BrokerRegistrationChangeRecord(broker_id=broker_id, fenced=-1)], 5, 1)
    assert [broker.broker_id for broker in publisher.image.live_brokers()] == [1, 3]


def test_questions_about_what_is_not_there() -> None:
    image = MetadataImage()
    assert image.topic_by_id(A) is None
    assert image.partition("t", 0) is None
    assert dict(image.config(2, "t")) == {}
    assert TopicImage("t", A).partitions == {}


@pytest.mark.parametrize(
    "record",
    [
        r.RemoveTopicRecord(topic_id=A),
        r.PartitionRecord(partition_id=0, topic_id=A),
        r.PartitionChangeRecord(partition_id=0, topic_id=A),
        r.BrokerRegistrationChangeRecord(broker_id=7),
        r.UnfenceBrokerRecord(id=7),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_about_something_that_never_was_is_a_clear_error(record: Any) -> None:
    with pytest.raises(TidelogError, match=rf"{type(record).__name__} at offset 12"):
        Replay(MetadataImage()).apply(record, 12)


def test_there_is_no_kind_of_record_that_would_be_refused() -> None:
    shapes = [getattr(r, name) for name in message_names("records_metadata")]
    assert set(_HANDLERS) == set(shapes)


def acl(number: int, name: str = "t") -> r.AccessControlEntryRecord:
    return r.AccessControlEntryRecord(id=bytes([number]) * 16, resource_type=2, resource_name=name, principal="User:a")


def quota(value: float, user: str | None, key: str = "producer_byte_rate", remove: bool = False) -> r.ClientQuotaRecord:
    part = r.ClientQuotaRecord.EntityData
    entity = [part(entity_type="user", entity_name=user), part(entity_type="client-id", entity_name=None)]
    return r.ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)


def scram(user: str, mechanism: int, salt: bytes = b"s") -> r.UserScramCredentialRecord:
    return r.UserScramCredentialRecord(name=user, mechanism=mechanism, salt=salt, iterations=4096)


def test_what_nothing_acts_on_is_carried_the_newest_of_each() -> None:
    token = r.DelegationTokenRecord(owner="User:a", token_id="t", renewers=["User:b"], expiration_timestamp=5)
    renewed = r.DelegationTokenRecord(owner="User:a", token_id="t", renewers=["User:b"], expiration_timestamp=9)
    before = [token, scram("a", 1), scram("a", 2), acl(2), acl(1), quota(1.5, "a"), quota(2.5, None)]
    publisher, _ = play([before, [quota(3.5, "a"), scram("a", 2, b"new"), renewed]])
    assert list(image_records(publisher.image)) == [
        quota(2.5, None),
        quota(3.5, "a"),
        acl(1),
        acl(2),
        scram("a", 1),
        scram("a", 2, b"new"),
        renewed,
    ]


def test_what_is_carried_goes_with_its_removal() -> None:
    there = [acl(1), acl(2), quota(1, "a"), quota(2, "a", "request_percentage"), scram("a", 1), scram("a", 2)]
    gone = [
        r.RemoveAccessControlEntryRecord(id=bytes([1]) * 16),
        quota(0, "a", remove=True),
        r.RemoveUserScramCredentialRecord(name="a", mechanism=2),
        r.RemoveDelegationTokenRecord(token_id="never there"),
    ]
    publisher, _ = play([there, gone])
    assert list(image_records(publisher.image)) == [quota(2, "a", "request_percentage"), acl(2), scram("a", 1)]


# metadata transactions


def created(name: str) -> list[Any]:
    return [r.TopicRecord(name=name, topic_id=name.encode() * 16)]


def test_a_transaction_over_several_batches_counts_when_it_ends() -> None:
    begin, end = r.BeginTransactionRecord(name="x"), r.EndTransactionRecord()
    publisher, deltas = play([created("a"), [begin, *created("b")], created("c"), [end, *created("d")]])
    assert [sorted(topic.name for topic in delta.created) for delta in deltas] == [["a"], [], [], ["b", "c", "d"]]
    assert publisher.image.held is None


def test_a_transaction_that_is_given_up_never_was() -> None:
    begin, abort = r.BeginTransactionRecord(), r.AbortTransactionRecord(reason="no")
    publisher, _ = play([[begin, *created("a")], [abort], created("b")])
    assert list(publisher.image.topics) == ["b"]
    assert publisher.image.held is None


def test_the_image_tells_of_a_transaction_that_is_open() -> None:
    publisher, _ = play([[r.BeginTransactionRecord(), *created("a")]])
    assert publisher.image.held == ((created("a")[0], 1),)
    assert publisher.image.topics == {}
