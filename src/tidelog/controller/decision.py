"""What a decision is: records that change the metadata, and the response that leaves once they are committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tidelog.metadata.image import MetadataImage
from tidelog.protocol.messages import records_metadata as r
from tidelog.protocol.records_framing import encode_metadata_record

# The versions that metadata.version 30 asks for; all others are 0.
_VERSIONS: Final[dict[type, int]] = {r.RegisterBrokerRecord: 4, r.PartitionRecord: 2, r.PartitionChangeRecord: 2}


@dataclass(slots=True)
class Decision:
    response: Any
    records: list[Any] = field(default_factory=list)


Decide: TypeAlias = Callable[[MetadataImage], Decision]


def encode_record(record: Any) -> bytes:
    return encode_metadata_record(record, _version(record))


def _version(record: Any) -> int:
    if isinstance(record, r.BrokerRegistrationChangeRecord):
        # The lowest that carries what is set, as Apache Kafka writes it.
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
    return _VERSIONS.get(type(record), 0)
