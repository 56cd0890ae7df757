"""Who keeps a descriptor when there are too few."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tidelog.runtime.descriptors import (
    Descriptors,
    connections_max,
    descriptors_max,
    files_share,
    raise_descriptors_max,
)


class Holder:
    def __init__(self) -> None:
        self.fd = os.open(os.devnull, os.O_RDONLY)
        self.used = False


@pytest.fixture
def pool() -> Iterator[Descriptors]:
    pool = Descriptors(3)
    yield pool
    pool.close_all()


def held(pool: Descriptors, count: int) -> list[Holder]:
    holders = [Holder() for _ in range(count)]
    for holder in holders:
        pool.add(holder)
    return holders


def test_the_first_opened_goes_first(pool: Descriptors) -> None:
    first, second, third = held(pool, 3)
    assert pool.make_room()
    assert (first.fd, len(pool)) == (-1, 2)
    assert second.fd >= 0
    assert third.fd >= 0


def test_one_that_was_used_gets_a_second_chance_but_not_a_third(pool: Descriptors) -> None:
    first, second, third = held(pool, 3)
    first.used = True
    pool.make_room()
    assert second.fd == -1
    pool.add(Holder())
    pool.make_room()
    assert third.fd == -1
    pool.add(Holder())
    pool.make_room()
    assert first.fd == -1


def test_when_all_were_used_the_oldest_goes(pool: Descriptors) -> None:
    holders = held(pool, 3)
    for holder in holders:
        holder.used = True
    assert pool.make_room()
    assert [holder.fd >= 0 for holder in holders] == [False, True, True]


def test_who_must_keep_it_keeps_it(pool: Descriptors) -> None:
    holders = held(pool, 3)
    for holder in holders:
        pool.keep(holder)
    assert not pool.make_room()
    assert all(holder.fd >= 0 for holder in holders)
    pool.let_go(holders[1])
    assert pool.make_room()
    assert [holder.fd >= 0 for holder in holders] == [True, False, True]


def test_after_a_burst_all_that_are_too_many_go(pool: Descriptors) -> None:
    holders = held(pool, 10)
    for holder in holders:
        pool.keep(holder)
    for holder in holders:
        pool.let_go(holder)
    assert pool.make_room()
    assert len(pool) == 2


def test_closing_twice_closes_once(pool: Descriptors) -> None:
    (holder,) = held(pool, 1)
    pool.close(holder)
    pool.close(holder)
    assert len(pool) == 0


def test_a_file_that_is_not_open_is_not_kept(pool: Descriptors) -> None:
    (holder,) = held(pool, 1)
    pool.close(holder)
    pool.keep(holder)
    pool.let_go(holder)
    assert len(pool) == 0


def test_files_and_connections_share_the_descriptors() -> None:
    for limit in (256, 1024, 4096, 20_000, 1_000_000):
        assert files_share(limit) <= min(limit // 2, 8192)
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        assert (descriptors_max(), connections_max()) == (1024, 1024 - 512 - 128)
        raise_descriptors_max()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
