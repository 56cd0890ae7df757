"""Images to decide over, made as the node makes them: by records."""

from __future__ import annotations

from typing import Any

from tidelog.controller.decision import Decision
from tidelog.metadata.config import BrokerValues
from tidelog.metadata.image import Endpoint, MetadataImage
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.config import load
from tidelog.protocol.messages import records_metadata as r

DIRECTORY_ID = b"directory-of-1--"


def broker_values(**settings: str) -> BrokerValues:
    return load(None, {}, [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]).values


class Cluster:
    """The newest image; `commit` replays a decision into it."""

    def __init__(self, brokers: int = 1) -> None:
        self._publisher = MetadataPublisher()
        records: list[Any] = []
        for broker_id in range(1, brokers + 1):
            endpoint = r.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)
            records.append(
                r.RegisterBrokerRecord(
                    broker_id=broker_id,
                    broker_epoch=broker_id,
                    end_points=[endpoint],
                    fenced=False,
                    log_dirs=[DIRECTORY_ID.replace(b"1", b"%d" % broker_id)],
                )
            )
        self._publisher.apply(records, 0, 1)

    @property
    def image(self) -> MetadataImage:
        return self._publisher.image

    def apply(self, *records: Any) -> MetadataImage:
        self._publisher.apply(records, self.image.offset + 1, 1)
        return self.image

    def commit(self, decision: Decision) -> Any:
        self.apply(*decision.records)
        return decision.response


__all__ = ["DIRECTORY_ID", "Cluster", "Endpoint", "broker_values"]
