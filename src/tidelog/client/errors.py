"""What the client raises: a sentence for people, and Kafka's error name where a broker gave one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.kernel.errors import TidelogError
from tidelog.protocol.errors import ErrorCode


class ClientError(TidelogError):
    """The root of the client's errors."""

    is_retriable = False


class BrokerError(ClientError):
    """A broker refused: `code` is Kafka's error, `subject` what it was about, `detail` the broker's own words."""

    def __init__(self, code: int, subject: str = "", detail: str | None = None) -> None:
        self.code = error_code(code)
        self.subject = subject
        self.detail = detail
        super().__init__(_sentence(self.code, subject, detail))

    @property
    def is_retriable(self) -> bool:  # type: ignore[override]
        return self.code.is_retriable


class UnreachableError(ClientError):
    """Nobody answered at the addresses that were tried."""

    is_retriable = True

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        tried = "; ".join(f"{address}: {reason}" for address, reason in reasons.items())
        super().__init__(f"no broker can be reached ({tried})")


class ConnectionLostError(ClientError):
    """The connection broke, or was given up, with the request under way: nobody knows whether it took effect."""

    is_retriable = True


class RequestTimeoutError(ConnectionLostError):
    """No answer in time."""


class AuthenticationError(ClientError):
    """The broker does not take our name and password, or is not who it should be. Asking again would not help, and may
    lock the account."""


class UnsupportedApiError(ClientError):
    """The broker has no version of a request that this client can speak."""


class MissingError(BrokerError):
    """A topic or partition that the cluster does not have, by metadata that was just fetched. Kafka's clients go on
    asking, as it may be new; somebody who mistyped a name wants to know soon."""

    is_retriable = False

    def __init__(self, topic: str, partition: int | None = None) -> None:
        subject = f"topic {topic}" if partition is None else f"partition {partition} of topic {topic}"
        detail = f"there is no such {'topic' if partition is None else 'partition'}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject, detail)
        self.topic = topic
        self.partition = partition


def error_code(number: int) -> ErrorCode:
    """A broker newer than this client may send codes that it does not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def check(number: int, subject: str = "", detail: str | None = None) -> None:
    """Raise BrokerError unless the code is NONE."""
    if number != ErrorCode.NONE:
        raise BrokerError(number, subject, detail)


def raise_first(results: Iterable[object]) -> None:
    """Raise the first error among per-item results."""
    for result in results:
        if isinstance(result, ClientError):
            raise result


def _sentence(code: ErrorCode, subject: str, detail: str | None) -> str:
    text = detail or EXPLANATIONS.get(code) or code.name.lower().replace("_", " ")
    text = text.rstrip(".")
    return f"{subject}: {text} ({code.name})" if subject else f"{text} ({code.name})"


EXPLANATIONS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed in a way it has no code for; its log says more",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is not in the log (any more)",
    ErrorCode.CORRUPT_MESSAGE: "a batch of records does not match its checksum or is malformed",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the broker that was asked does not lead the partition",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not finish in the time the request allowed",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than max.message.bytes of the topic",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading the group",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group has no coordinator at the moment",
    ErrorCode.NOT_COORDINATOR: "the broker that was asked does not coordinate the group",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the name is not a valid topic name: use 1 to 249 of a-z A-Z 0-9 . _ -",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than segment.bytes of the topic",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but fewer replicas are in sync than min.insync.replicas asks",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or all",
    ErrorCode.ILLEGAL_GENERATION: "the member's generation is not the group's",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the members of the group have no assignor in common",
    ErrorCode.INVALID_GROUP_ID: "the group id is not valid",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know the member; a commit from outside needs an empty group",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside what the broker allows",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed on this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed on this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed on this cluster",
    ErrorCode.INVALID_TIMESTAMP: "a timestamp is outside what the topic allows",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not know this version of the request",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not valid",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is below 1 or above the number of brokers",
    ErrorCode.INVALID_CONFIG: "a config is not valid",
    ErrorCode.NOT_CONTROLLER: "the broker that was asked is not the controller",
    ErrorCode.INVALID_REQUEST: "the broker finds the request malformed",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a batch of an idempotent producer is missing before this one",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer with the same id is at work",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk failed",
    ErrorCode.NON_EMPTY_GROUP: "the group has active members; stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker forbids deleting topics (delete.topic.enable=false)",
    ErrorCode.FENCED_LEADER_EPOCH: "the client's view of the partition's leader is out of date",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the client knows of a newer leader than the broker",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not take this compression",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker allows",
    ErrorCode.FENCED_INSTANCE_ID: "another member with the same group.instance.id has joined",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group consumes this topic at the moment; stop its members first",
    ErrorCode.INVALID_RECORD: "the broker refuses a record of the batch",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a transaction holds offsets of the group",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted, or deleted and created again",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "a quota is used up; try later",
}
