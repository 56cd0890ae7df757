"""The two key maps do the same: what they take in, when they are full, and which records are the last of their key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.cleaning.keys import Keys
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import Columns, TwinName, decode

TWINS: tuple[TwinName, ...] = ("pure", "native")
SEED = bytes(range(16))
KEYS = st.one_of(st.none(), st.binary(max_size=3), st.integers(0, 30).map(lambda n: b"k" * n))


def decoded(batches: list[list[bytes | None]], twin: TwinName, codec: Codec = Codec.NONE, start: int = 0) -> Columns:
    data, offset = bytearray(), start
    for keys in batches:
        data += build_batch([RecordInput(key, b"v", 1) for key in keys], base_offset=offset, codec=codec)
        offset += len(keys)
    return decode(bytes(data), twin=twin)


@given(
    batches=st.lists(st.lists(KEYS, min_size=1, max_size=6), min_size=1, max_size=8),
    wanted=st.lists(st.booleans(), min_size=8, max_size=8),
    first_offset=st.integers(0, 20),
    keys_max=st.integers(1, 12),
    codec=st.sampled_from([Codec.NONE, Codec.ZSTD]),
)
def test_both_twins_know_the_same(
    batches: list[list[bytes | None]], wanted: list[bool], first_offset: int, keys_max: int, codec: Codec
) -> None:
    pytest.importorskip("numba")
    results = []
    for twin in TWINS:
        keys = Keys(SEED, keys_max, twin)
        columns = decoded(batches, twin, codec)
        taken = keys.put(columns, wanted[: len(batches)], first_offset)
        last = [bool(one) for one in keys.last_of_key(columns)]
        rows = [
            keys.kept_rows(columns, keys.last_of_key(columns), 0, columns.count, tombstones=flag) for flag in (0, 1)
        ]
        results.append((taken, len(keys), last, rows))
    assert results[0] == results[1]
    assert results[0][2] == expected(batches, wanted, first_offset, results[0][0])


def expected(batches: list[list[bytes | None]], wanted: list[bool], first_offset: int, taken: int) -> list[bool]:
    newest: dict[bytes, int] = {}
    offset = 0
    for number, batch in enumerate(batches):
        for key in batch:
            if number < taken and wanted[number] and key is not None and offset >= first_offset:
                newest[key] = offset
            offset += 1
    every = [key for batch in batches for key in batch]
    return [key is not None and newest.get(key, -1) <= at for at, key in enumerate(every)]


@pytest.mark.parametrize("twin", TWINS)
def test_a_map_that_is_full_ends_with_a_batch(twin: TwinName) -> None:
    if twin == "native":
        pytest.importorskip("numba")
    keys = Keys(SEED, 3, twin)
    columns = decoded([[b"a", b"b"], [b"c", b"d", b"e"], [b"f"], [b"g"]], twin)
    assert keys.put(columns, [True, True, True, True], 0) == 2
    assert len(keys) == 5
    assert keys.put(columns, [True, False, False, True], 0) == 0


@pytest.mark.parametrize("twin", TWINS)
def test_many_keys_are_told_apart(twin: TwinName) -> None:
    """So many that the native table grows several times."""
    if twin == "native":
        pytest.importorskip("numba")
    keys = Keys(SEED, 10**6, twin)
    names = [b"key %d" % number for number in range(100_000)]
    columns = decoded([names[at : at + 1000] for at in range(0, len(names), 1000)], twin)
    assert keys.put(columns, [True] * 100, 0) == 100
    assert len(keys) == len(names)
    assert all(keys.last_of_key(columns))
    before = decoded([names[500:510]], twin)
    assert [bool(one) for one in keys.last_of_key(before)] == [False] * 10
    others = decoded([[b"other %d" % number for number in range(1000)]], twin)
    assert all(keys.last_of_key(others))
