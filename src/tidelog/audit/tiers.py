"""All tiers together: producers, the log, consumers, the lake; by topic and window. Pure.

    balanced   every tier has the same count, and every producer that could have counted has done so
    off        the counts differ, though all are there
    unknown    a producer or a reader that was there has not told (it died, it hangs, its notice is lost), none has, or
               the log does not have its records any more
    open       the window is not over, or a reader has not come to all of it yet

What no silence can explain is off at once: producers' counts are never more than the log's, and what the lake has of
the offsets that it claims is known to the last record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from tidelog.audit.lives import Extent, Members
from tidelog.audit.notices import LAKE, LOG, PRODUCER, Notice

Verdict = Literal["balanced", "off", "unknown", "open"]
VERDICTS: Final[tuple[Verdict, ...]] = ("balanced", "off", "unknown", "open")
SILENT_WINDOWS: Final = 3


class TierWindow(NamedTuple):
    topic: str
    begin_ms: int
    counts: Mapping[str, int]
    """By tier: producer, log, the consumers' tiers, lake."""
    verdict: Verdict
    reasons: tuple[str, ...] = ()


class Reach(NamedTuple):
    """Records of the log that a reader has come by, and those that it has not come to yet, by the beginning of the
    window. What is in neither was there before it began."""

    passed: Mapping[int, int]
    ahead: Mapping[int, int]


class Gone(NamedTuple):
    """Why the log may have fewer records than were written."""

    before_ms: int | None
    """Of windows that begin before this time; None: of all."""
    why: str


class Tiers:
    def __init__(self, window_ms: int, *, silent_windows: int = SILENT_WINDOWS) -> None:
        self.window_ms = window_ms
        self._members = Members(window_ms, silent_windows * window_ms)
        self.forgotten_before_ms: int | None = None
        """What was told before this time may be deleted: of windows that were over by then."""

    def add(self, notice: Notice, *, after_gone: bool = False) -> None:
        """In any order, and more than once. `after_gone`: earlier ones of the member may be deleted."""
        self._members.add(notice, after_gone=after_gone)

    @property
    def other_windows(self) -> int:
        """Notices that count by windows that do not fit into these, which are left out."""
        return self._members.misfit_notices

    def readers(self, topic: str) -> list[str]:
        return self._members.readers(topic)

    def extents(self, tier: str, topic: str) -> dict[int, Extent] | None:
        return self._members.extents(tier, topic)

    def counting_since_ms(self, topic: str) -> int | None:
        return self._members.counting_since_ms(topic)

    def judge(
        self,
        topic: str,
        log: Mapping[int, int],
        *,
        now_ms: int,
        lake: Mapping[int, int] | None = None,
        reaches: Mapping[str, Reach] | None = None,
        gone: Sequence[Gone] = (),
    ) -> list[TierWindow]:
        """Every window of a topic that any tier knows; log and lake by the beginning of the window in ms. A reader
        without a reach is held to the whole log. `now_ms` is a time before the notices were read."""
        begins = self._members.begins(topic) | set(log) | set(lake or ())
        found = []
        for begin in sorted(begins):
            end = begin + self.window_ms
            is_forgotten = self.forgotten_before_ms is not None and end <= self.forgotten_before_ms
            one = _Judging(self._members, topic, begin, end, now_ms, is_forgotten)
            found.append(one.judge(log.get(begin, 0), lake, reaches or {}, gone))
        return found


class _Judging:
    """Of one window."""

    def __init__(self, members: Members, topic: str, begin: int, end: int, now_ms: int, is_forgotten: bool) -> None:
        self._members = members
        self._topic = topic
        self._begin = begin
        self._now_ms = now_ms
        self._is_over = end <= now_ms
        self._forgotten = ["what was told of it may be deleted from the audit topic"] if is_forgotten else []
        self._off: list[str] = []
        self._unknown: list[str] = []
        self._ahead: list[str] = []
        self._notes: list[str] = []

    def judge(
        self, log: int, lake: Mapping[int, int] | None, reaches: Mapping[str, Reach], gone: Sequence[Gone]
    ) -> TierWindow:
        told, readers = self._members.told(self._topic, self._begin), self._members.readers(self._topic)
        counts = {PRODUCER: told[PRODUCER], LOG: log, **{tier: told[tier] for tier in readers}}
        if lake is not None:
            counts[LAKE] = lake.get(self._begin, 0)
        lost = [one.why for one in gone if one.before_ms is None or self._begin < one.before_ms]
        self._producers(counts[PRODUCER], log, lost)
        for tier in readers:
            self._reader(tier, counts[tier], log, reaches.get(tier), lost)
        if lake is not None:
            passed = self._passed(LAKE, log, reaches.get(LAKE))
            if counts[LAKE] != passed:
                self._off.append(f"the lake has {_difference(counts[LAKE], passed)} than the log's that it claims")
        return TierWindow(self._topic, self._begin, counts, *self._verdict())

    def _verdict(self) -> tuple[Verdict, tuple[str, ...]]:
        if self._off:
            return "off", tuple(self._off + self._unknown)
        if not self._is_over:
            return "open", ()
        if self._unknown:
            return "unknown", tuple(self._unknown)
        if self._ahead:
            return "open", tuple(self._ahead)
        return "balanced", tuple(self._notes)

    def _producers(self, produced: int, log: int, lost: list[str]) -> None:
        untold = [
            *self._members.untold(PRODUCER, self._topic, self._begin),
            *self._members.misfits(PRODUCER, self._topic),
        ]
        since_ms = self._members.counting_since_ms(self._topic)
        if since_ms is None:
            untold.append("no producer counts for the topic")
        self._unknown += untold
        if log < produced:
            # Silence cannot be the reason: what is not told would only be more.
            text = f"the log has {_difference(log, produced)} than the producers"
            self._unknown.extend(f"{text}: {why}" for why in lost)
            if not lost:
                self._off.append(text)
        elif log > produced and self._is_over and not untold:
            text = f"the log has {_difference(log, produced)} than the producers"
            doubtful = self._members.doubtful(self._topic, self._begin)
            broken_off = self._untold_for_ever(PRODUCER)
            if log - produced <= doubtful:
                self._unknown.append(f"{text}: they gave up {doubtful}, which may have arrived")
            elif broken_off:
                self._unknown.extend(f"{text}: {why}" for why in broken_off)
            elif since_ms is not None and self._begin < since_ms:
                self._unknown.append(f"{text}: the first one that counts started after it began")
            else:
                self._off.append(text)

    def _reader(self, tier: str, count: int, log: int, reach: Reach | None, lost: list[str]) -> None:
        if not self._is_over:
            return
        untold = [*self._members.untold(tier, self._topic, self._begin), *self._members.misfits(tier, self._topic)]
        passed = self._passed(tier, log, reach)
        if count < passed:
            untold += self._untold_for_ever(tier)
        elif count > passed:
            untold += lost
        self._unknown += dict.fromkeys(untold)
        if count != passed and not untold:
            self._off.append(f"{tier} has {_difference(count, passed)} than the log")

    def _untold_for_ever(self, tier: str) -> list[str]:
        return [*self._forgotten, *self._members.broken_off(tier, self._topic, self._begin, self._now_ms)]

    def _passed(self, tier: str, log: int, reach: Reach | None) -> int:
        if reach is None:
            return log
        passed, ahead = reach.passed.get(self._begin, 0), reach.ahead.get(self._begin, 0)
        if ahead:
            self._ahead.append(f"{tier} has not come to {_records(ahead)} yet")
        if before := max(0, log - passed - ahead):
            self._notes.append(f"{_records(before)} from before {tier} began")
        return passed


def _records(number: int) -> str:
    return f"{number} record" if number == 1 else f"{number} records"


def _difference(number: int, than: int) -> str:
    return f"{abs(number - than)} {'fewer' if number < than else 'more'}"
