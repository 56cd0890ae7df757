"""The members that have told something: which of their starts completed what, what they counted, and how far readers
came. Pure; judged in tiers.py.

A member is a tier, a host and a name. Each of its starts is a life of its own. One that died leaves its windows untold:
until the same member starts again, or, when it never does, for `silent_ms`; it cannot have counted later ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.audit.notices import PRODUCER, Notice


class Key(NamedTuple):
    tier: str
    host: str
    name: str

    def __str__(self) -> str:
        return f"{self.tier} {self.name} on {self.host}"


@dataclass(slots=True)
class Life:
    """One incarnation of a member."""

    started_ms: int
    complete_to_ms: int
    ended: bool = False
    topics: frozenset[str] = frozenset()
    told: int = 0
    """The last notice up to which none is lost."""
    waiting: dict[int, Notice] = field(default_factory=dict)

    def may_use(self, topic: str) -> bool:
        """One that said nothing of topics may have used any; what a lost notice named is not known either."""
        return not self.topics or topic in self.topics or bool(self.waiting)

    @property
    def is_over(self) -> bool:
        return self.ended and not self.waiting


class _Known(NamedTuple):
    key: Key
    life: Life
    dead_by_ms: int
    """When it had ended if it told nothing more."""


class Extent(NamedTuple):
    """The offsets of a partition that a reader's tier has come by."""

    first: int
    next: int


class Members:
    def __init__(self, window_ms: int, silent_ms: int) -> None:
        self._window_ms = window_ms
        self._silent_ms = silent_ms
        self._lives: dict[Key, dict[str, Life]] = {}
        self._counts: dict[tuple[str, int], Counter[str]] = {}
        self._doubtful: Counter[tuple[str, int]] = Counter()
        self._extents: dict[tuple[str, str], dict[int, Extent]] = {}
        self._misfits: dict[Key, tuple[int, frozenset[str]]] = {}
        self.misfit_notices = 0

    # What they told

    def add(self, notice: Notice, *, after_gone: bool = False) -> None:
        """In any order, and more than once. Counts are taken when no notice before them is missing; `after_gone`: those
        before the first one that is left are deleted, and are not waited for."""
        key = Key(notice.tier, notice.host, notice.name)
        if self._window_ms % notice.window_ms:
            self.misfit_notices += 1
            self._misfits[key] = (notice.window_ms, frozenset(notice.topics))
            return
        lives = self._lives.setdefault(key, {})
        told = notice.sequence - 1 if after_gone else 0
        life = lives.setdefault(notice.incarnation, Life(notice.started_ms, notice.started_ms, told=told))
        if notice.sequence <= life.told:
            return
        life.waiting[notice.sequence] = notice
        while (following := life.waiting.pop(life.told + 1, None)) is not None:
            self._take(life, following)

    def _take(self, life: Life, notice: Notice) -> None:
        life.told = notice.sequence
        life.complete_to_ms = max(life.complete_to_ms, notice.complete_to_ms)
        life.ended |= notice.ended
        life.topics |= set(notice.topics)
        for one in notice.counts:
            at = (one.topic, one.begin_ms // self._window_ms * self._window_ms)
            self._counts.setdefault(at, Counter())[notice.tier] += one.count
            if notice.tier == PRODUCER:
                self._doubtful[at] += one.doubtful
        for place in notice.positions:
            extents = self._extents.setdefault((notice.tier, place.topic), {})
            known = extents.get(place.partition, Extent(place.first, place.next))
            extents[place.partition] = Extent(min(known.first, place.first), max(known.next, place.next))

    # What is known

    def begins(self, topic: str) -> set[int]:
        return {begin for name, begin in self._counts if name == topic}

    def told(self, topic: str, begin: int) -> Counter[str]:
        return self._counts.get((topic, begin), Counter())

    def doubtful(self, topic: str, begin: int) -> int:
        return self._doubtful[topic, begin]

    def readers(self, topic: str) -> list[str]:
        """Tiers that read the topic: a group that never has is no tier of it."""
        tiers = {key.tier for key in self._lives} - {PRODUCER}
        return sorted(tier for tier in tiers if any(topic in life.topics for _, life, _ in self._of_tier(tier)))

    def extents(self, tier: str, topic: str) -> dict[int, Extent] | None:
        """By partition; None when the tier's members tell no positions."""
        if not any(key[0] == tier for key in self._extents):
            return None
        return self._extents.get((tier, topic), {})

    def counting_since_ms(self, topic: str) -> int | None:
        """When the first producer started that counts for the topic."""
        return min((life.started_ms for _, life, _ in self._of_tier(PRODUCER) if topic in life.topics), default=None)

    # What is not

    def untold(self, tier: str, topic: str, begin: int) -> Iterator[str]:
        """A sentence for each member of the tier that has not told of a window that it may have counted in."""
        end = begin + self._window_ms
        for key, life, dead_by_ms in self._of_tier(tier):
            is_told = life.complete_to_ms >= end or life.is_over
            if life.may_use(topic) and not is_told and life.started_ms < end and begin < dead_by_ms:
                yield f"{key} has not told of it"

    def misfits(self, tier: str, topic: str) -> Iterator[str]:
        for key, (window_ms, topics) in sorted(self._misfits.items()):
            if key.tier == tier and (not topics or topic in topics):
                yield f"{key} counts by windows of {window_ms} ms, which do not fit"

    def broken_off(self, tier: str, topic: str, begin: int, now_ms: int) -> Iterator[str]:
        """What one wrote or was handed last before it died may be of any window before: it gave a record an earlier
        time, or read far behind."""
        for key, life, dead_by_ms in self._of_tier(tier):
            if life.may_use(topic) and not life.is_over and begin < dead_by_ms <= now_ms:
                yield f"{key} ended without telling all"

    def _of_tier(self, tier: str) -> Iterator[_Known]:
        for key, lives in sorted(self._lives.items()):
            if key.tier != tier:
                continue
            in_order = sorted(lives.values(), key=lambda life: life.started_ms)
            for index, life in enumerate(in_order):
                heard_to_ms = max([life.complete_to_ms, *(one.complete_to_ms for one in life.waiting.values())])
                is_last = index + 1 == len(in_order)
                yield _Known(key, life, heard_to_ms + self._silent_ms if is_last else in_order[index + 1].started_ms)
