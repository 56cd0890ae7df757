"""The names of files and directories of a partition, as Kafka gives them."""

from __future__ import annotations

from typing import Final

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"
DELETE_DIR: Final = "-delete"
STRAY_DIR: Final = "-stray"
FUTURE_DIR: Final = "-future"
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"

_NAME_MAX: Final = 255
_DIGITS: Final = 20


def segment_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def offset_of_name(name: str, suffix: str) -> int | None:
    """The offset in the name of a segment's file with the suffix, None when it is not such a name."""
    digits = name[: -len(suffix)]
    if not name.endswith(suffix) or len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_dir(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a live partition's directory; None for anything else, also one that is being deleted."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        return None
    return topic, int(number)


def parted_dir(topic: str, partition: int, unique_hex: str, suffix: str) -> str:
    """The name of a directory on its way out; a long topic is cut so that the name still fits."""
    tail = f"-{partition}.{unique_hex}{suffix}"
    return topic[: _NAME_MAX - len(tail)] + tail
