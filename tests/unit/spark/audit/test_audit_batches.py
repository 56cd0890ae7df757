"""What is counted from headers is what a consumer of the same bytes would see, record by record."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, AbortedTransaction, Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.client.records import ConsumedRecord, read_out
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.batch import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    RecordInput,
    build_batch,
    iter_headers,
    read_header,
    set_crc,
)
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import decode
from tidelog.spark.audit.batches import Asked, Held, held
from tidelog.spark.audit.windows import WindowCounts

AT = TopicPartition("t", 0)
WINDOW_MS = 100


def thinned(batch: bytearray, kept: list[bool], horizon_ms: int | None = None) -> bytearray:
    """As the cleaner leaves it: offsets, times and the end of the batch stay, records go."""
    columns = decode(batch)
    content = b"".join(bytes(batch[columns.start[row] : columns.end[row]]) for row in range(columns.count) if kept[row])
    header = read_header(batch)._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(content), record_count=sum(kept))
    if horizon_ms is not None:
        # The times of the records are told from the base: move it and they move along, so only an empty batch is tried.
        header = header._replace(base_timestamp=horizon_ms, attributes=header.attributes | DELETE_HORIZON)
    result = bytearray(HEADER.pack(*header)) + content
    set_crc(result)
    return result


class Log(NamedTuple):
    data: bytes
    aborted: list[AbortedTransaction]
    next_offset: int
    is_ordered: bool
    """Whether the times within each batch do not go back."""


@st.composite
def logs(draw: st.DrawFn) -> Log:
    offset = draw(st.integers(0, 5))
    data = bytearray()
    aborted: list[AbortedTransaction] = []
    begun: dict[int, int] = {}
    is_ordered = True
    for _ in range(draw(st.integers(0, 8))):
        offset += draw(st.sampled_from([0, 0, 0, 3]))
        kind = draw(st.sampled_from([0, 0, APPEND_TIME, TRANSACTIONAL, TRANSACTIONAL, TRANSACTIONAL | CONTROL]))
        producer = draw(st.integers(1, 2))
        count = 1 if kind & CONTROL else draw(st.integers(1, 5))
        times = [draw(st.integers(0, 350)) for _ in range(count)]
        if draw(st.booleans()):
            times.sort()
        codec = draw(st.sampled_from([Codec.NONE, Codec.LZ4]))
        batch = build_batch(
            [RecordInput(b"k", b"v", time) for time in times],
            base_offset=offset,
            attributes=kind,
            producer_id=producer if kind & TRANSACTIONAL else -1,
            codec=codec,
        )
        if codec is Codec.NONE and not kind & CONTROL and draw(st.booleans()):
            batch = thinned(batch, draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        # The base of a thinned batch is the time of a record that may be gone: that is no order to trust either.
        is_ordered &= bool(kind & APPEND_TIME) or times == sorted(times)
        if kind & CONTROL and producer in begun:
            first = begun.pop(producer)
            if draw(st.booleans()):
                aborted.append(AbortedTransaction(producer, first))
        elif kind & TRANSACTIONAL and not kind & CONTROL:
            begun.setdefault(producer, offset)
        data += batch
        offset += count
    return Log(bytes(data), aborted, offset, is_ordered)


def seen(log: Log, asked: Asked) -> list[ConsumedRecord]:
    """By the client, which decodes every record."""
    transactions = tuple(log.aborted)
    fetched = Fetched(memoryview(log.data), 0, 0, 0, transactions)
    level = READ_COMMITTED if asked.committed else READ_UNCOMMITTED
    return [one for one in read_out(AT, fetched, asked.start, level).records if one.offset < asked.end]


def offsets_of(found: Held) -> list[int]:
    return [offset for start, end in found.visible.pairs() for offset in range(start, end)]


@settings(max_examples=300)
@given(logs(), st.integers(0, 20), st.integers(0, 50), st.booleans())
def test_offsets_and_windows_are_those_that_a_consumer_sees(log: Log, start: int, length: int, committed: bool) -> None:
    asked = Asked(start, start + length, committed, every_time=True)
    windows = WindowCounts(WINDOW_MS)
    found = held(log.data, log.aborted, asked, windows)
    records = seen(log, asked)
    assert offsets_of(found) == [one.offset for one in records]
    assert windows.counts == Counter(one.timestamp // WINDOW_MS * WINDOW_MS for one in records)
    hidden = {offset for first, end in found.hidden.pairs() for offset in range(first, end)}
    assert not hidden & set(offsets_of(found))
    assert all(start <= offset < asked.end for offset in hidden)
    assert found.next_offset == max(start, log.next_offset if log.data else start)


@given(logs().filter(lambda log: log.is_ordered))
def test_where_times_do_not_go_back_within_a_batch_headers_are_enough(log: Log) -> None:
    asked = Asked(0, 1 << 40)
    windows = WindowCounts(WINDOW_MS)
    held(log.data, log.aborted, asked, windows)
    assert windows.counts == Counter(one.timestamp // WINDOW_MS * WINDOW_MS for one in seen(log, asked))


def counted(data: bytes, window_ms: int = WINDOW_MS) -> tuple[int, Counter[int]]:
    """(batches that were decoded, windows)."""
    windows = WindowCounts(window_ms)
    return held(data, (), Asked(0, 1 << 40), windows).decoded, windows.counts


def batch_of(*times: int, attributes: int = 0) -> bytearray:
    return build_batch([RecordInput(None, b"v", time) for time in times], attributes=attributes)


def test_only_what_straddles_is_decoded() -> None:
    assert counted(batch_of(10, 20, 99)) == (0, {0: 3})
    assert counted(batch_of(10, 99, 100)) == (1, {0: 2, 100: 1})
    # The broker's time is one for the batch, whatever the first record says.
    assert counted(batch_of(10, 99, 100, attributes=APPEND_TIME)) == (0, {100: 3})


def test_a_transaction_behind_an_aborted_one_of_the_same_producer_is_seen() -> None:
    def batch(offset: int, attributes: int) -> bytearray:
        one = [RecordInput(None, b"v", 1)]
        return build_batch(one, base_offset=offset, attributes=attributes, producer_id=7)

    data = b"".join(
        [
            batch(0, TRANSACTIONAL),
            batch(1, TRANSACTIONAL | CONTROL),
            batch(2, TRANSACTIONAL),
            batch(3, TRANSACTIONAL | CONTROL),
        ]
    )
    found = held(data, [AbortedTransaction(7, 0)], Asked(0, 10), WindowCounts(1))
    assert (found.visible.pairs(), found.hidden.pairs()) == ([(2, 3)], [(0, 2), (3, 4)])
    both = held(data, [AbortedTransaction(7, 2), AbortedTransaction(7, 0)], Asked(0, 10), WindowCounts(1))
    assert (both.visible.pairs(), both.hidden.pairs()) == ([], [(0, 4)])


def test_a_horizon_in_the_place_of_the_first_time_is_not_taken_for_one() -> None:
    whole = batch_of(110, 120)
    header = read_header(whole)
    deltas_from_horizon = header._replace(attributes=DELETE_HORIZON, base_timestamp=header.base_timestamp)
    whole[:HEADER_SIZE] = HEADER.pack(*deltas_from_horizon)
    set_crc(whole)
    assert counted(whole) == (1, {100: 2})


def test_a_batch_that_the_cleaner_emptied_holds_nothing() -> None:
    empty = thinned(batch_of(1, 2, 3), [False] * 3, horizon_ms=500)
    assert counted(empty) == (1, {})
    assert held(empty, (), Asked(0, 10), WindowCounts(1)).next_offset == 3


def test_damage_is_an_error_and_not_a_count() -> None:
    damaged = batch_of(1, 2)
    damaged[-1] ^= 1
    with pytest.raises(ProtocolError, match="CRC"):
        counted(damaged)
    with pytest.raises(ProtocolError, match="order"):
        counted(batch_of(1, 2) * 2)


def test_a_part_of_a_batch_at_the_end_is_left() -> None:
    first = batch_of(1)
    second = build_batch([RecordInput(None, b"v", 1)], base_offset=1)
    found = held(first + second[:-1], (), Asked(0, 10), WindowCounts(1))
    assert (found.visible.pairs(), found.next_offset) == ([(0, 1)], 1)
    assert len(list(iter_headers(first + second[:-1]))) == 1
