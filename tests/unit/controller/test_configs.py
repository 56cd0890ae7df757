"""Changing configs: which resources there are, which records come of a change, and each refusal with Kafka's code.

What values are allowed is the business of tests/unit/metadata/test_config_alter.py."""

from __future__ import annotations

import pytest

from tests.unit.controller.images import Cluster, broker_values
from tests.unit.controller.test_topics import create, topic
from tidelog.controller.configs import alter, incremental_alter, resource_complaint
from tidelog.controller.decision import Decision
from tidelog.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.alter_configs import AlterConfigsRequest
from tidelog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

VALUES = broker_values()
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.commit(create(cluster, topic("t", retention_ms="5000", segment_bytes="1048576")))
    return cluster


def change(
    cluster: Cluster,
    kind: int,
    name: str,
    *configs: tuple[str, int, str | None],
    validate_only: bool = False,
) -> Decision:
    shape = IncrementalAlterConfigsRequest
    entries = [shape.AlterableConfig(name=n, config_operation=operation, value=v) for n, operation, v in configs]
    resource = shape.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return incremental_alter(shape(resources=[resource], validate_only=validate_only), cluster.image, VALUES)


def replace(cluster: Cluster, kind: int, name: str, validate_only: bool = False, **configs: str) -> Decision:
    shape = AlterConfigsRequest
    entries = [shape.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = shape.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return alter(shape(resources=[resource], validate_only=validate_only), cluster.image, VALUES)


def code(decision: Decision) -> ErrorCode:
    (answer,) = decision.response.responses
    assert (answer.error_code == 0) == (not answer.error_message)
    return ErrorCode(answer.error_code)


def written(decision: Decision) -> dict[str, str | None]:
    return {record.name: record.value for record in decision.records}


def test_setting_and_deleting_write_only_what_changes(cluster: Cluster) -> None:
    decision = change(
        cluster,
        TOPIC_RESOURCE,
        "t",
        ("retention.ms", SET, "7000"),
        ("segment.bytes", SET, "1048576"),
        ("flush.ms", DELETE, None),
    )
    assert (code(decision), written(decision)) == (ErrorCode.NONE, {"retention.ms": "7000"})
    cluster.commit(decision)
    decision = change(cluster, TOPIC_RESOURCE, "t", ("retention.ms", DELETE, None))
    assert written(decision) == {"retention.ms": None}
    cluster.commit(decision)
    assert dict(cluster.image.config(TOPIC_RESOURCE, "t")) == {"segment.bytes": "1048576"}


def test_lists_are_appended_to_and_subtracted_from(cluster: Cluster) -> None:
    cluster.commit(change(cluster, TOPIC_RESOURCE, "t", ("cleanup.policy", APPEND, "compact")))
    assert cluster.image.config(TOPIC_RESOURCE, "t")["cleanup.policy"] == "delete,compact"
    cluster.commit(change(cluster, TOPIC_RESOURCE, "t", ("cleanup.policy", SUBTRACT, "delete")))
    assert cluster.image.config(TOPIC_RESOURCE, "t")["cleanup.policy"] == "compact"


def test_the_old_call_removes_what_it_does_not_name(cluster: Cluster) -> None:
    decision = replace(cluster, TOPIC_RESOURCE, "t", flush_ms="9")
    assert written(decision) == {"flush.ms": "9", "retention.ms": None, "segment.bytes": None}
    cluster.commit(decision)
    assert dict(cluster.image.config(TOPIC_RESOURCE, "t")) == {"flush.ms": "9"}


def test_validation_only_writes_nothing(cluster: Cluster) -> None:
    assert change(cluster, TOPIC_RESOURCE, "t", ("flush.ms", SET, "9"), validate_only=True).records == []
    assert replace(cluster, TOPIC_RESOURCE, "t", validate_only=True).records == []


def test_one_bad_value_of_a_resource_changes_nothing_of_it(cluster: Cluster) -> None:
    decision = change(cluster, TOPIC_RESOURCE, "t", ("flush.ms", SET, "9"), ("retention.ms", SET, "soon"))
    assert (code(decision), decision.records) == (ErrorCode.INVALID_CONFIG, [])
    decision = replace(cluster, TOPIC_RESOURCE, "t", flush_ms="9", retention_ms="soon")
    assert (code(decision), decision.records) == (ErrorCode.INVALID_CONFIG, [])


def test_a_bad_resource_does_not_hinder_the_next(cluster: Cluster) -> None:
    shape = IncrementalAlterConfigsRequest
    entry = shape.AlterableConfig(name="flush.ms", config_operation=SET, value="9")
    resources = [
        shape.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[entry])
        for name in ("missing", "t")
    ]
    decision = incremental_alter(shape(resources=resources), cluster.image, VALUES)
    assert [answer.error_code for answer in decision.response.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert [record.resource_name for record in decision.records] == ["t"]


def test_a_resource_given_twice_is_refused_both_times(cluster: Cluster) -> None:
    """Each would be decided over the same image, and the later would undo the earlier."""
    shape = IncrementalAlterConfigsRequest
    resources = [
        shape.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name="t",
            configs=[shape.AlterableConfig(name=name, config_operation=SET, value="9")],
        )
        for name in ("flush.ms", "flush.messages")
    ]
    decision = incremental_alter(shape(resources=resources), cluster.image, VALUES)
    old = AlterConfigsRequest
    twice = [old.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configs=[]) for _ in range(2)]
    for decided in (decision, alter(old(resources=twice), cluster.image, VALUES)):
        assert [answer.error_code for answer in decided.response.responses] == [ErrorCode.INVALID_REQUEST] * 2
        assert decided.records == []


@pytest.mark.parametrize("name", ["", "1"])
def test_brokers_and_their_defaults_have_configs(cluster: Cluster, name: str) -> None:
    decision = change(cluster, BROKER_RESOURCE, name, ("log.retention.ms", SET, "5000"))
    assert code(decision) == ErrorCode.NONE
    cluster.commit(decision)
    assert dict(cluster.image.config(BROKER_RESOURCE, name)) == {"log.retention.ms": "5000"}


def test_groups_have_configs_whether_they_exist_or_not(cluster: Cluster) -> None:
    decision = change(cluster, GROUP_RESOURCE, "g", ("consumer.session.timeout.ms", SET, "50000"))
    assert code(decision) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        pytest.param(TOPIC_RESOURCE, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown topic"),
        pytest.param(BROKER_RESOURCE, "7", ErrorCode.INVALID_REQUEST, id="unknown broker"),
        pytest.param(BROKER_RESOURCE, "one", ErrorCode.INVALID_REQUEST, id="no number"),
        pytest.param(BROKER_RESOURCE, "²", ErrorCode.INVALID_REQUEST, id="no number that int() takes"),
        pytest.param(GROUP_RESOURCE, "", ErrorCode.INVALID_REQUEST, id="group without a name"),
        pytest.param(99, "x", ErrorCode.INVALID_REQUEST, id="unknown kind"),
    ],
)
def test_resources_that_there_are_not(cluster: Cluster, kind: int, name: str, expected: ErrorCode) -> None:
    refusal = resource_complaint(cluster.image, kind, name)
    assert refusal is not None and refusal.message
    for decision in (change(cluster, kind, name, ("flush.ms", SET, "9")), replace(cluster, kind, name, flush_ms="9")):
        assert (code(decision), decision.records) == (expected, [])
