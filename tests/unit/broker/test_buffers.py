"""Pooled read buffers: powers of two, used again, and the pool has a bound."""

from __future__ import annotations

import pytest

from tidelog.broker.buffers import SHARED_BYTES, Buffers


@pytest.mark.parametrize(
    ("wanted", "capacity"), [(1, 4096), (4096, 4096), (4097, 8192), (8192, 8192), (70_000, 131_072), (1 << 20, 1 << 20)]
)
def test_capacities_are_powers_of_two(wanted: int, capacity: int) -> None:
    assert len(Buffers().take(wanted)) == capacity


def test_a_buffer_that_came_back_is_used_again_and_only_once() -> None:
    buffers = Buffers()
    first = buffers.take(5000)
    buffers.give(first)
    assert buffers.take(4097) is first
    assert buffers.take(4097) is not first


def test_the_pool_forgets_what_is_too_much() -> None:
    """A peak of large requests must not be kept for ever."""
    buffers = Buffers()
    taken = [buffers.take(4 << 20) for _ in range(10)]
    for buffer in taken:
        buffers.give(buffer)
    again = [buffers.take(4 << 20) for _ in range(10)]
    assert sum(any(buffer is old for old in taken) for buffer in again) == 4
    for buffer in again:
        buffers.give(buffer)
    assert [buffers.take(4 << 20) in again for _ in range(4)] == [True] * 4


def test_one_larger_than_the_pool_is_never_kept() -> None:
    buffers = Buffers()
    huge = buffers.take(20 << 20)
    buffers.give(huge)
    assert buffers.take(20 << 20) is not huge


def test_the_shared_buffer_is_writable_and_one() -> None:
    buffers = Buffers()
    assert len(buffers.shared) == SHARED_BYTES and not buffers.shared.readonly
