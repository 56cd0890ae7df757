"""Which segments become one."""

from __future__ import annotations

from tidelog.log.cleaning.grouping import grouped
from tidelog.log.cleaning.order import Source


def source(base: int, size: int = 100, *, end: int | None = None, index: int = 1, times: int = 1) -> Source:
    return Source(base, base + 10 if end is None else end, size, index, times, False)


def bases(sources: list[Source], *, segment_bytes: int = 300, segment_index_bytes: int = 10_000) -> list[list[int]]:
    groups = grouped(sources, segment_bytes=segment_bytes, segment_index_bytes=segment_index_bytes)
    return [[each.base_offset for each in group] for group in groups]


def test_neighbours_that_fit_into_a_segment_are_one_group() -> None:
    assert bases([source(0), source(10), source(20), source(30)]) == [[0, 10, 20], [30]]
    assert bases([source(0), source(10, 201), source(20, 99)]) == [[0], [10, 20]]
    assert bases([source(0, 5000), source(10)]) == [[0], [10]]
    assert bases([]) == []


def test_the_indexes_must_fit_too() -> None:
    many = [source(0, index=3), source(10, index=3), source(20, index=3)]
    assert bases(many, segment_index_bytes=6 * 8) == [[0, 10], [20]]
    many = [source(0, times=3), source(10, times=3), source(20, times=3)]
    assert bases(many, segment_index_bytes=6 * 12) == [[0, 10], [20]]


def test_offsets_must_fit_into_an_index() -> None:
    assert bases([source(5, end=10), source(10, end=5 + 2**31)]) == [[5, 10]]
    assert bases([source(5, end=10), source(10, end=6 + 2**31)]) == [[5], [10]]
