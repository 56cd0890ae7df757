"""A whole partition read from chunks, and the audit around it, with a link that has the log in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.errors import MissingError
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.spark.audit import AuditError, Outlet, Report, auditing, log
from tidelog.spark.audit.log import Reading, Stretch, read_partition
from tidelog.spark.link import Link
from tidelog.spark.pump import Chunk, TopicChangedError


def batches(*firsts_and_counts: tuple[int, int]) -> list[bytes]:
    return [
        bytes(build_batch([RecordInput(None, b"v", first + n) for n in range(count)], base_offset=first))
        for first, count in firsts_and_counts
    ]


class MemoryLink:
    """The part of a Link that the audit uses; each batch is a chunk."""

    def __init__(self, held: list[bytes], end: int) -> None:
        self.held = held
        self.end = end
        self.id = "A"
        self.on_chunk: Callable[[int], None] = lambda number: None

    def existing(self, topics: Any) -> dict[str, list[int]]:
        return {"t": [0]} if "t" in set(topics) else {}

    def topic_ids(self, topics: Any) -> dict[str, str]:
        return dict.fromkeys(topics, self.id)

    def earliest(self, places: Any) -> dict[Any, int]:
        return dict.fromkeys(places, 0)

    def latest(self, places: Any, isolation: str = "") -> dict[Any, int]:
        return dict.fromkeys(places, self.end)

    def fetch(self, topic: str, partition: int, start: int, end: int, *_: Any, **__: Any) -> Iterator[Chunk]:
        for number, data in enumerate(self.held):
            self.on_chunk(number)
            next_offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
            if next_offset > start:
                yield Chunk(memoryview(data), (), next_offset, 0)


class Table:
    def __init__(self, *offsets: int) -> None:
        self._offsets = offsets

    def rows(self) -> Iterator[pa.RecordBatch]:
        count = len(self._offsets)
        times = pa.array(self._offsets, pa.int64()).cast(pa.timestamp("ms", "UTC"))
        columns = {"topic": ["t"] * count, "partition": [0] * count, "offset": self._offsets, "timestamp": times}
        yield pa.record_batch(columns)


def audited(link: MemoryLink, table: Table, **options: Any) -> Report:
    return auditing.audit(cast(Link, link), table, ["t"], **options)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=6), st.integers(0, 12), st.integers(0, 30))
def test_gaps_are_what_no_batch_holds(steps: list[tuple[int, int]], start: int, length: int) -> None:
    places: list[tuple[int, int]] = []
    offset = 0
    for gap, count in steps:
        places.append((offset + gap, count))
        offset += gap + count
    stretch = Stretch(
        topic="t", partition=0, log_start=0, start=start, end=start + length, stable_end=99, log_end=99, claimed=99
    )
    found = read_partition(cast(Link, MemoryLink(batches(*places), 99)), stretch, Reading(every_record=True))
    inside = set(range(start, start + length))
    held = {first + n for first, count in places for n in range(count)} & inside
    assert found.gaps is not None
    assert [one for begin, end in found.gaps.pairs() for one in range(begin, end)] == sorted(inside - held)
    assert found.offsets.tolist() == found.times.tolist() == sorted(held)


def test_more_gaps_than_are_kept_leave_windows_out_and_offsets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    link = MemoryLink(batches((0, 1), (2, 1), (4, 1), (6, 1)), 7)
    assert audited(link, Table(*range(7))).windows
    monkeypatch.setattr(log, "GAPS_MAX", 2)
    report = audited(link, Table(*range(7)))
    assert report.balanced and not report.windows and report.total("cleaned") == 3
    assert "t-0: not compared by windows: the cleaner has left too many gaps" in report.table()
    assert [span.first for span in audited(link, Table(0, 1, 4, 6)).missing] == [2]


def test_a_log_that_changes_between_two_readings_is_not_compared_by_windows() -> None:
    link = MemoryLink(batches((0, 3)), 3)
    table = Table(0, 1, 2)
    assert audited(link, table, window_ms=2).balanced

    # The rows have other times than the log, which is looked at again; by then the cleaner has been there.
    class Later(Table):
        def rows(self) -> Iterator[pa.RecordBatch]:
            for batch in super().rows():
                times = pa.array([100] * batch.num_rows, pa.int64()).cast(pa.timestamp("ms", "UTC"))
                link.held = batches((1, 2))
                yield batch.set_column(3, "timestamp", times)

    report = audited(link, Later(0, 1, 2), window_ms=2)
    assert report.balanced and "not compared by windows: the log changed while it was read" in report.table()


@pytest.mark.parametrize("error", [TopicChangedError(TopicPartition("t", 0), "A", "B"), MissingError("t")])
def test_a_topic_that_goes_while_it_is_read_is_unknown(error: Exception) -> None:
    link = MemoryLink(batches((0, 3), (3, 3)), 6)

    def on_chunk(number: int) -> None:
        if number == 1:
            raise error

    link.on_chunk = on_chunk
    report = audited(link, Table(0, 1, 2))
    assert not report.balanced and list(report.unknown) == ["t"] and not report.partitions


def test_a_topic_that_is_another_one_when_the_table_was_read_is_unknown() -> None:
    link = MemoryLink(batches((0, 3)), 3)

    class Swapped(Table):
        def rows(self) -> Iterator[pa.RecordBatch]:
            link.id = "B"
            yield from super().rows()

    report = audited(link, Swapped(0, 1, 2))
    assert not report.balanced and "created again" in report.unknown["t"]


def test_every_record_is_in_one_outlet_once() -> None:
    link = MemoryLink(batches((0, 6)), 6)
    lake, letters = Outlet("lake", Table(0, 1, 2, 5)), Outlet("dead letters", Table(3, 4))
    report = auditing.audit(cast(Link, link), [lake, letters], ["t"])
    assert report.balanced and report.landed() == {"lake": 4, "dead letters": 2}
    assert report.table() == (
        "TOPIC  PARTITION  OFFSETS  BEHIND  RECORDS  LAKE  DEAD LETTERS  SUM  MISSING  DOUBLED  SURPLUS\n"
        "t      0          0..5     0       6        4     2             6    0        0        0\n"
        "\n"
        "balanced: 6 records of 1 topic = 4 lake + 2 dead letters, once each, in 1 window of 3600 s"
    )
    assert report.as_json()["partitions"][0]["by_outlet"] == {"lake": 4, "dead letters": 2}
    # In both, in neither, and one that the log never had.
    report = auditing.audit(cast(Link, link), [lake, Outlet("dead letters", Table(3, 5, 9))], ["t"])
    assert [line for line in report.table().splitlines() if line.startswith("t-0")] == [
        "t-0: 4 missing (1)",
        "t-0: 5 doubled (1): 1 lake + 1 dead letters",
        "t-0: 9 surplus (1): 1 dead letters",
    ]


def test_more_outlets_than_can_be_told_apart_are_refused() -> None:
    outlets = [Outlet(str(n), Table()) for n in range(6)]
    with pytest.raises(AuditError, match="6 outlets: expected 1 to 5"):
        auditing.audit(cast(Link, MemoryLink([], 0)), outlets, ["t"])
    with pytest.raises(AuditError, match="0 outlets"):
        auditing.audit(cast(Link, MemoryLink([], 0)), [], ["t"])


def test_rows_without_a_time_are_not_compared_by_windows() -> None:
    class Untimed(Table):
        def rows(self) -> Iterator[pa.RecordBatch]:
            for batch in super().rows():
                yield batch.set_column(3, "timestamp", pa.nulls(batch.num_rows, pa.timestamp("ms", "UTC")))

    link = MemoryLink(batches((0, 3)), 3)
    report = auditing.audit(cast(Link, link), [Outlet("lake", Table(0, 1)), Outlet("retrying", Untimed(2))], ["t"])
    assert report.balanced and not report.windows
    assert "t-0: not compared by windows: 1 row without a time" in report.table()
    assert not auditing.audit(cast(Link, link), [Outlet("lake", Untimed(0, 1))], ["t"]).balanced
    # Where rows of an earlier topic are told by their times, the offset has to do.
    anew = auditing.audit(cast(Link, link), Untimed(0, 1, 2, 7), ["t"], created_anew={"t"})
    assert anew.balanced and anew.partitions[0].earlier == 1


def test_progress_names_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "TELL_BYTES", 1)
    told: list[str] = []
    audited(MemoryLink(batches((0, 3), (3, 3)), 6), Table(0), progress=told.append)
    assert told == [
        "reading t-0 from 0 to 6",
        "reading t-0: at 3 of 0 to 6",
        "reading t-0: at 6 of 0 to 6",
        "reading the table",
    ]
    told.clear()
    outlets = [Outlet("lake", Table(0)), Outlet("duplicates", Table(1))]
    auditing.audit(cast(Link, MemoryLink([], 0)), outlets, ["t"], progress=told.append)
    assert told[1:] == ["reading lake", "reading duplicates"]


def test_what_cannot_be_asked_is_refused() -> None:
    link = MemoryLink([], 0)
    with pytest.raises(AuditError, match="isolation='dirty': expected read_committed or read_uncommitted"):
        audited(link, Table(), isolation="dirty")
    with pytest.raises(AuditError, match="window_ms=0: expected a number of ms from 1 on"):
        audited(link, Table(), window_ms=0)


def test_a_topic_created_anew_that_is_too_large_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "TIMED_MAX", 5)
    with pytest.raises(AuditError, match="created anew and has more than 5 records"):
        audited(MemoryLink(batches((0, 3), (3, 3)), 6), Table(0), created_anew={"t"})
