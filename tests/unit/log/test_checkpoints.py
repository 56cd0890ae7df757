"""The text checkpoints: what they look like, what is refused, and how they reach the disk."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.log.helpers import sim_disk
from tidelog.log.checkpoints import decode_lines, decode_offsets, encode_lines, encode_offsets
from tidelog.log.errors import CorruptFileError
from tidelog.sim.disk import DiskFaults, SimDisk, SimulatedCrash

TOPICS = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789._-", min_size=1, max_size=249)
OFFSETS = st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=20)


def test_a_version_a_count_and_a_line_an_entry() -> None:
    assert encode_offsets({("orders", 0): 17, ("a.b_c-1", 12): 0}) == b"0\n2\norders 0 17\na.b_c-1 12 0\n"


def test_no_entries() -> None:
    assert encode_offsets({}) == b"0\n0\n"
    assert decode_offsets(b"0\n0\n", "x") == {}


def test_an_empty_file_has_no_entries() -> None:
    assert decode_offsets(b"", "x") == {}


@given(OFFSETS)
def test_what_is_written_is_read(offsets: dict[tuple[str, int], int]) -> None:
    assert decode_offsets(encode_offsets(offsets), "x") == offsets


@given(st.lists(st.lists(st.text("abc019-", min_size=1), min_size=1, max_size=4), max_size=9))
def test_lines_round_trip(lines: list[list[str]]) -> None:
    assert decode_lines(encode_lines(" ".join(line) for line in lines), "x") == lines


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1\n1\nt 0 1\n", "version '1', expected 0"),
        (b"x\n1\nt 0 1\n", "version 'x'"),
        (b"\n", "version ''"),
        (b"0\n", "the number of entries"),
        (b"0\n2\nt 0 1\n", "the number of entries"),
        (b"0\n0\nt 0 1\n", "the number of entries"),
        (b"0\nmany\nt 0 1\n", "the number of entries"),
        (b"0\n1\nt 0 1", "a whole line"),
        (b"0\n1\nt 0 \n", "malformed line"),
        (b"0\n1\nt 0\n", "malformed line"),
        (b"0\n1\nt 0 1 2\n", "malformed line"),
        (b"0\n1\nt x 1\n", "malformed line"),
        (b"0\n1\nt 0 -1\n", "malformed line"),
        (b"0\n1\nt 0 1_0\n", "malformed line"),
        ("0\n1\nt 0 \u0663\n".encode(), "malformed line"),
        (b"0\n1\nt  0 1\n", "malformed line"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_anything_else_is_refused_with_the_name_of_the_file(data: bytes, message: str) -> None:
    with pytest.raises(CorruptFileError, match=message) as refused:
        decode_offsets(data, "data/some-checkpoint")
    assert str(refused.value).startswith("data/some-checkpoint ")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(CorruptFileError):
        decode_offsets(data, "x")


@given(OFFSETS.filter(bool), st.data())
def test_a_torn_file_is_never_taken_for_whole(offsets: dict[tuple[str, int], int], data: st.DataObject) -> None:
    whole = encode_offsets(offsets)
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(CorruptFileError):
        decode_offsets(whole[:cut], "x")


def replace(disk: SimDisk) -> None:
    disk.replace_file("data/c", encode_offsets({("t", 0): 1}))
    disk.replace_file("data/c", encode_offsets({("t", 0): 2}))


def test_a_power_cut_at_any_point_leaves_the_old_file_or_the_new_one() -> None:
    counting = sim_disk()
    before = counting.operations
    replace(counting)
    found = set()
    for crash_at in range(before + 1, counting.operations + 1):
        for seed in range(8):
            disk = sim_disk(seed)
            disk.faults = DiskFaults(crash_at=crash_at)
            with pytest.raises(SimulatedCrash):
                replace(disk)
            data = disk.crash(keep_page_cache=False).read_file("data/c")
            found.add(None if data is None else decode_offsets(data, "c")["t", 0])
    assert found == {None, 1, 2}


def test_the_new_file_is_synced_before_it_takes_the_name() -> None:
    disk = sim_disk()
    disk.trace = []
    disk.replace_file("data/c", b"0\n0\n")
    assert [step.split()[0] for step in disk.trace if "remove" not in step] == [
        "create",
        "append",
        "sync",
        "rename",
        "sync",
    ]
    assert "data/c.tmp" in disk.trace[0]
