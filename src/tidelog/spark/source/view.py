"""What a planner sees of the log: the partitions that a query reads, their bounds, and where positions lie in them.

Lives in a planner's process, beside the link that it asks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tidelog.client.offsets import EARLIEST, LATEST
from tidelog.spark.link import At, Link
from tidelog.spark.offsets import Offsets, names
from tidelog.spark.source.loss import report_loss
from tidelog.spark.source.options import AtTime, Everywhere, Given, OptionError, Position, SourceOptions


class View:
    def __init__(self, link: Link, options: SourceOptions) -> None:
        self.link = link
        self.options = options

    # Partitions

    def partitions(self) -> list[At]:
        """Those that the options name; MissingError or OptionError for what is not there."""
        wanted = self._topics()
        found = self.link.partitions(wanted)
        every = [(topic, partition) for topic in sorted(found) for partition in found[topic]]
        return self._assigned(every)

    def existing_partitions(self) -> list[At]:
        """The same, but what is not there (any more) is left out."""
        found = self.link.existing(self._topics())
        every = {(topic, partition) for topic, part in found.items() for partition in part}
        return sorted(every.intersection(self.options.partitions) if self.options.partitions else every)

    def ids(self, partitions: Collection[At]) -> dict[str, str]:
        """As they were when the partitions were asked for."""
        return self.link.topic_ids({topic for topic, _ in partitions}, ask=False) if partitions else {}

    def _topics(self) -> list[str]:
        if self.options.pattern is not None:
            pattern = re.compile(self.options.pattern)
            return [name for name in self.link.topics() if pattern.fullmatch(name)]
        return sorted(set(self.options.topics) | {topic for topic, _ in self.options.partitions})

    def _assigned(self, every: list[At]) -> list[At]:
        if not self.options.partitions:
            return every
        if missing := set(self.options.partitions).difference(every):
            raise OptionError(f"assign: there is no partition {names(missing)}; there are {names(every)}")
        return sorted(self.options.partitions)

    # Bounds

    def earliest(self, partitions: Collection[At]) -> dict[At, int]:
        return self.link.earliest(partitions) if partitions else {}

    def latest(self, partitions: Collection[At]) -> dict[At, int]:
        return self.link.latest(partitions, self.options.isolation) if partitions else {}

    # Positions

    def starts(self, position: Position, partitions: Collection[At], latest: Mapping[At, int]) -> dict[At, int]:
        return self._resolve(position, partitions, latest, none_that_young=self.options.strategy)

    def ends(self, position: Position, partitions: Collection[At], latest: Mapping[At, int]) -> dict[At, int]:
        return self._resolve(position, partitions, latest, none_that_young="latest")

    def _resolve(
        self, position: Position, partitions: Collection[At], latest: Mapping[At, int], *, none_that_young: str
    ) -> dict[At, int]:
        match position:
            case Everywhere(offset):
                return dict(latest) if offset == LATEST else self.earliest(partitions)
            case Given(option, offsets):
                _check_complete(option, offsets.at, partitions)
                return self._given(option, offsets, partitions, latest)
            case AtTime(option, times):
                if isinstance(times, int):
                    return self._at(option, dict.fromkeys(partitions, times), latest, none_that_young)
                _check_complete(option, times, partitions)
                return self._at(option, times, latest, none_that_young)

    def _given(
        self, option: str, offsets: Offsets, partitions: Collection[At], latest: Mapping[At, int]
    ) -> dict[At, int]:
        """Within the log; an offset outside it, or one of another topic of the name, is lost data."""
        earliest = self.earliest(partitions)
        ids = self.ids(partitions) if offsets.ids else {}
        found: dict[At, int] = {}
        for at in partitions:
            low, high, wanted = earliest[at], latest[at], offsets.at[at]
            topic, partition = at
            if wanted in (EARLIEST, LATEST):
                found[at] = low if wanted == EARLIEST else high
                continue
            if offsets.is_other_topic(topic, ids):
                self.lose(f"{option}: topic {topic} was deleted and created again, its id is {ids[topic]}")
                found[at] = low
                continue
            if not low <= wanted <= high:
                self.lose(f"{option}: offset {wanted} of {topic}-{partition} is not in its log ({low} to {high})")
            found[at] = min(max(wanted, low), high)
        return found

    def _at(
        self, option: str, times: Mapping[At, int], latest: Mapping[At, int], none_that_young: str
    ) -> dict[At, int]:
        found = self.link.at_times(times) if times else {}
        if none_that_young == "error" and (without := [at for at, offset in found.items() if offset is None]):
            raise OptionError(
                f"{option}: {names(without)} has no record of that time or later; "
                "startingOffsetsByTimestampStrategy=latest would start at its end"
            )
        # A record of an open transaction has a time too, but cannot be read yet.
        return {at: latest[at] if offset is None else min(offset, latest[at]) for at, offset in found.items()}

    def lose(self, message: str) -> None:
        report_loss(message, fail=self.options.fail_on_data_loss)


def _check_complete(option: str, given: Collection[At], partitions: Collection[At]) -> None:
    """As Spark's source wants it: every partition, and no other."""
    if missing := set(partitions).difference(given):
        raise OptionError(f"{option} has no entry for {names(missing)}; every partition needs one")
    if others := set(given).difference(partitions):
        raise OptionError(f"{option} names {names(others)}, which is not read; there are {names(partitions)}")
