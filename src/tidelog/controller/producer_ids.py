"""Blocks of producer ids: a broker takes a thousand at a time, so that an id is never given twice, not even after a
crash."""

from __future__ import annotations

from typing import Final

from tidelog.controller.decision import Decision
from tidelog.metadata.image import MetadataImage
from tidelog.protocol.messages import records_metadata as r

BLOCK: Final = 1000


def allocate_block(image: MetadataImage, node_id: int) -> Decision:
    """The response is the range of ids that now belongs to the broker."""
    first = image.next_producer_id
    broker = image.brokers.get(node_id)
    record = r.ProducerIdsRecord(
        broker_id=node_id, broker_epoch=-1 if broker is None else broker.epoch, next_producer_id=first + BLOCK
    )
    return Decision(range(first, first + BLOCK), [record])
