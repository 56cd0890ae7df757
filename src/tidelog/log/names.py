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


def offsets_by_suffix(names: list[str]) -> dict[str, list[int]]:
    """The offsets in the names of a partition's files, in order, by the kind of file; other names are left out."""
    found: dict[str, list[int]] = {LOG: [], INDEX: [], TIME_INDEX: [], TXN_INDEX: [], SNAPSHOT: []}
    for name in sorted(names):
        digits = name[:_DIGITS]
        offsets = found.get(name[_DIGITS:])
        if offsets is not None and digits.isascii() and digits.isdigit():
            offsets.append(int(digits))
    return found


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
