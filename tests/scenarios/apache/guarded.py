"""What only Apache Kafka can make and Tidelog has to keep: ACLs, quotas, SCRAM credentials, transactions."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.scenarios.apache.content import settle
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from tidelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tidelog.testing.wire import Wire

AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_ANY: Final = 1
_QUARTER_OF_AN_HOUR_MS: Final = 15 * 60_000
OPEN_TRANSACTION: Final = "left-open"


def guard(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    acls = [
        AclBinding(ResourceType.TOPIC, "plain", literal, "User:bob", "*", AclOperation.READ, allow),
        AclBinding(ResourceType.TOPIC, "pl", prefixed, "User:eve", "127.0.0.1", AclOperation.WRITE, deny),
        AclBinding(ResourceType.GROUP, "*", literal, "User:bob", "*", AclOperation.ALL, allow),
    ]
    settle(admin.create_acls(acls))
    credentials = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), b"secret", b"salt")
        for user, mechanism in (("alice", ScramMechanism.SCRAM_SHA_256), ("bob", ScramMechanism.SCRAM_SHA_512))
    ]
    settle(admin.alter_user_scram_credentials(credentials))
    shape = AlterClientQuotasRequest
    entity = [shape.EntityData(entity_type="user", entity_name="alice"), shape.EntityData(entity_type="client-id")]
    entity[1].entity_name = None
    entry = shape.EntryData(entity=entity, ops=[shape.OpData(key="producer_byte_rate", value=1e6)])
    with Wire(bootstrap) as wire:
        answer = wire.call(shape(entries=[entry]), 1, AlterClientQuotasResponse)
    assert answer.entries[0].error_code == ErrorCode.NONE, answer


def guards(bootstrap: str) -> list[str]:
    """Lines with everything that `guard` has made, as the broker tells it."""
    with Wire(bootstrap) as wire:
        everything = DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        acls = wire.call(everything, 3, DescribeAclsResponse)
        users = wire.call(DescribeUserScramCredentialsRequest(users=None), 0, DescribeUserScramCredentialsResponse)
        quotas = wire.call(DescribeClientQuotasRequest(), 1, DescribeClientQuotasResponse)
    assert (acls.error_code, users.error_code, quotas.error_code) == (0, 0, 0), (acls, users, quotas)
    return sorted(map(repr, [*acls.resources, *users.results, *(quotas.entries or ())]))


def wait_for_guards(bootstrap: str) -> list[str]:
    """Apache's broker tells of a change some time after its controller has answered."""
    deadline = time.monotonic() + 20
    while len(found := guards(bootstrap)) < 6:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def transact(bootstrap: str, topic: str, name: str, ends: str) -> None:
    """A transaction for each letter: c commits, a aborts, o leaves one open and must be the last."""
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": name,
        "transaction.timeout.ms": _QUARTER_OF_AN_HOUR_MS,
    }
    producer = Producer(settings)
    producer.init_transactions(30)
    for number, end in enumerate(ends):
        producer.begin_transaction()
        for record in range(4):
            producer.produce(topic, value=f"{name} {number} {end} {record}".encode(), partition=0)
        assert producer.flush(20) == 0
        if end == "c":
            producer.commit_transaction(20)
        elif end == "a":
            producer.abort_transaction(20)
