"""Offsets as a checkpoint keeps them: `{"topic": {"0": 23}}`, as Spark's own Kafka source writes them, and one key that
no topic can have: `"$ids"`, the ids of the topics. With it a topic that was created again is told from one that
retention has trimmed. Checkpoint texts are compared as text, so the order is always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.spark.link import At

IDS: Final = "$ids"
BEHIND: Final = "$behind"
"""Only in what is reported as the latest offset: how far a query is behind, in the words of Spark's Kafka source."""


@dataclass(frozen=True, slots=True)
class Offsets:
    at: Mapping[At, int]
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for topic, partition in sorted(self.at):
            found.setdefault(topic, {})[str(partition)] = self.at[topic, partition]
        ids = {topic: self.ids[topic] for topic in sorted(self.ids) if topic in found}
        return found | ({IDS: ids} if ids else {})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Offsets:
        """ValueError for anything else."""
        ids = found.get(IDS, {})
        if not isinstance(ids, dict) or not all(isinstance(text, str) for text in ids.values()):
            raise ValueError(f"{IDS} is not a map from topics to ids")
        return cls(by_partition({topic: part for topic, part in found.items() if not topic.startswith("$")}), dict(ids))

    def is_other_topic(self, topic: str, ids: Mapping[str, str]) -> bool:
        """Whether both sides know the topic's id, and it is not the same."""
        return topic in self.ids and topic in ids and self.ids[topic] != ids[topic]


def by_partition(found: Mapping[str, Any]) -> dict[At, int]:
    """{"topic": {"0": 23}} by topic and partition; ValueError for anything else."""
    numbers: dict[At, int] = {}
    for topic, part in found.items():
        if not isinstance(part, dict):
            raise ValueError(f"{topic}: not a map from partitions to numbers")
        for text, number in part.items():
            if not text.isascii() or not text.isdecimal() or not isinstance(number, int) or isinstance(number, bool):
                raise ValueError(f"{topic}: {text!r}: {number!r} is not a partition with a number")
            numbers[topic, int(text)] = number
    return numbers


def names(partitions: Iterable[At], most: int = 10) -> str:
    """Partitions for people, not more than a line of them."""
    every = sorted(partitions)
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"
