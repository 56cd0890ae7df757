"""A node's own registration: at each start features of a new cluster, controller, broker, then its partitions; at a
clean stop the farewell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.controller.decision import Decision
from tidelog.controller.leaders import elect_at_start, resign
from tidelog.metadata.image import BrokerImage, ControllerImage, Endpoint, MetadataImage
from tidelog.metadata.snapshot import broker_record, controller_record
from tidelog.protocol.messages import records_metadata as r

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "metadata.version": (7, 30),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
}
"""A feature is listed, and finalised, when the work that it stands for has landed."""


_VERSION: Final = "metadata.version"


def bootstrap(image: MetadataImage) -> Decision:
    """A new cluster finalises its features before anything else is written. What Apache Kafka began and did not end
    is given up, as its own next controller would do: the records that follow must not be taken for a part of it."""
    records: list[Any] = []
    if image.held is not None:
        records.append(r.AbortTransactionRecord(reason="the controller that began it has gone"))
    # A directory that an earlier release has made knows of no other feature, and gets those that have come since. One
    # that names others was made by who knew what to choose.
    if not image.features or set(image.features) == {_VERSION}:
        levels = sorted((name, high) for name, (_, high) in SUPPORTED_FEATURES.items() if name not in image.features)
        records += [r.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels]
    return Decision(None, records)


def register(
    next_offset: int,
    node_id: int,
    incarnation_id: bytes,
    endpoints: Sequence[Endpoint],
    directories: Sequence[bytes],
    rack: str | None,
) -> Decision:
    """RegisterController and RegisterBroker. The broker's epoch is the offset of its own record."""
    features = tuple((name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items()))
    controller = ControllerImage(controller_id=node_id, incarnation_id=incarnation_id, features=features)
    broker = BrokerImage(
        broker_id=node_id,
        epoch=next_offset + 1,
        incarnation_id=incarnation_id,
        endpoints=tuple(endpoints),
        features=features,
        rack=rack,
        log_dirs=tuple(directories),
    )
    return Decision(None, [controller_record(controller), broker_record(broker)])


def unfence(image: MetadataImage, node_id: int) -> Decision:
    change = r.BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=image.brokers[node_id].epoch, fenced=-1)
    records: list[Any] = [change, *elect_at_start(image, node_id)]
    return Decision(None, records)


def sign_off(image: MetadataImage, node_id: int) -> Decision:
    """A clean stop: fenced, and the leader of nothing. Apache Kafka refuses to register a broker that the metadata
    still shows as serving until its session would have run out, which is nine seconds of every start."""
    change = r.BrokerRegistrationChangeRecord(
        broker_id=node_id, broker_epoch=image.brokers[node_id].epoch, fenced=1, in_controlled_shutdown=1
    )
    return Decision(None, [change, *resign(image, node_id)])
