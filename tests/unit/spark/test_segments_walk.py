"""Walking through segment files that nobody writes to: every batch of a stretch and no other, or a gap that says where
the files go on. Any layout, with indexes, without them, and with ones that lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.log.index import OFFSET_ENTRY
from tidelog.log.names import INDEX, LOG, PARTITION_METADATA, segment_name
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.uuids import random_uuid, uuid_to_text
from tidelog.spark.segments.folder import Folder, Gap, find_folders
from tidelog.spark.segments.segment import Room, Segment
from tidelog.spark.segments.walk import Walk


class Batch(NamedTuple):
    base: int
    last: int
    data: bytes


Layout = list[list[tuple[int, int]]]
"""By segment: (offsets that are missing before a batch, records in it)."""
LAYOUTS = st.lists(
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 7]), st.integers(1, 5)), max_size=6), min_size=1, max_size=5
)
INDEXES = st.sampled_from(["none", "some", "zeros behind", "of another file"])


def write(directory: Path, layout: Layout, index: str, *, first: int = 0) -> tuple[list[int], list[Batch]]:
    """(base offsets of the segments, all batches). A segment reaches to where the next one begins."""
    offset, bases, batches = first, [], []
    random = Random(str(layout))
    for number, parts in enumerate(layout):
        bases.append(offset)
        data, entries = b"", []
        for gap, count in parts:
            offset += gap
            inputs = [RecordInput(b"k", random.randbytes(random.randrange(200)), 5) for _ in range(count)]
            batch = bytes(build_batch(inputs, base_offset=offset))
            entries.append((offset + count - 1 - bases[-1], len(data)))
            data += batch
            batches.append(Batch(offset, offset + count - 1, batch))
            offset += count
        offset += number % 2 * 3 + (not parts)  # what the cleaner took at the end; two bases are never the same
        (directory / segment_name(bases[-1], LOG)).write_bytes(data)
        content = b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries[1::2])
        if index == "zeros behind":
            content += bytes(OFFSET_ENTRY.size * 20)
        elif index == "of another file":
            content = b"".join(OFFSET_ENTRY.pack(entry, 11 * entry + 1) for entry in range(8))
        if index != "none":
            (directory / segment_name(bases[-1], INDEX)).write_bytes(content)
    return bases, batches


def through(walk: Walk, start: int, end: int, bases: list[int]) -> Iterator[bytes]:
    """As a reader goes, with nothing at all where the files have a gap."""
    position = start
    while position < end:
        try:
            piece = walk.next(position, end)
        except Gap as gap:
            assert gap.until is None or gap.until in bases
            if gap.until is None:
                return
            assert gap.until > position
            position = gap.until
            continue
        if piece is None:
            return
        yield bytes(piece.data)
        position = piece.next_offset


@settings(max_examples=100)
@given(LAYOUTS, INDEXES, st.integers(61, 700), st.data())
def test_every_batch_of_a_stretch_and_no_other(
    layout: Layout, index: str, piece_bytes: int, data: st.DataObject
) -> None:
    with TemporaryDirectory() as text:
        bases, batches = write(Path(text), layout, index, first=data.draw(st.sampled_from([0, 5, 10**12])))
        top = max(bases[-1], batches[-1].last + 1 if batches else 0) + 3
        start = data.draw(st.integers(max(0, bases[0] - 2), top))
        end = data.draw(st.integers(start + 1, top + 1))
        folder = Folder(text)
        walk = Walk(folder, piece_bytes)
        found = b"".join(through(walk, start, end, bases))
        walk.close()
        folder.close()
        assert found == b"".join(batch.data for batch in batches if batch.last >= start and batch.base < end)


@settings(max_examples=40)
@given(LAYOUTS, INDEXES, st.integers(61, 700))
def test_an_offset_is_found_in_its_segment(layout: Layout, index: str, room: int) -> None:
    with TemporaryDirectory() as text:
        bases, batches = write(Path(text), layout, index)
        folder = Folder(text)
        for base, end in zip(bases, [*bases[1:], 10**9], strict=True):
            segment = Segment(folder, base)
            mine = [batch for batch in batches if base <= batch.base < end]
            for offset in range(base, min(end, base + 40)):
                before = [batch for batch in mine if batch.last < offset]
                expected = None if len(before) == len(mine) else sum(len(batch.data) for batch in before)
                assert segment.seek(offset, Room(room)) == expected
            segment.close()
        folder.close()


def test_only_a_folder_of_the_topic_counts(tmp_path: Path) -> None:
    mine, other = (uuid_to_text(random_uuid(Random(seed))) for seed in (1, 2))
    for name, content in (("a", f"version: 0\ntopic_id: {mine}"), ("b", f"version: 0\ntopic_id: {other}"), ("c", "?")):
        (tmp_path / name / "t-3").mkdir(parents=True)
        (tmp_path / name / "t-3" / PARTITION_METADATA).write_text(content)
    (tmp_path / "d" / "t-3").mkdir(parents=True)
    found, _ = find_folders([str(tmp_path / name) + "/" for name in "zbcda"], "t", 3, mine)
    assert [folder.path for folder in found] == [f"{tmp_path}/a/t-3"]
    none, why = find_folders([str(tmp_path / name) for name in "zbcd"], "t", 3, mine)
    assert none == []
    assert [part.split(": ")[0].split(" is of")[0] for part in why.split("; ")] == [
        f"{tmp_path}/{name}/t-3" for name in "zbcd"
    ]
    assert f"with the id {other}, not {mine}" in why


def test_a_folder_that_is_held_open_is_not_another_one_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    write(tmp_path / "t-0", [[(0, 3)]], "none")
    folder = Folder(str(tmp_path / "t-0"))
    walk = Walk(folder, 100)
    (tmp_path / "t-0").rename(tmp_path / "t-0.0123-delete")
    (tmp_path / "t-0").mkdir()
    write(tmp_path / "t-0", [[(0, 1)], [(0, 9)]], "none")
    piece = walk.next(0)
    assert piece is not None
    assert (piece.next_offset, folder.bases()) == (3, [0])


def test_a_file_that_another_took_the_place_of_is_not_current(tmp_path: Path) -> None:
    write(tmp_path, [[(0, 3)]], "none")
    folder = Folder(str(tmp_path))
    segment = Segment(folder, 0)
    assert segment.is_current()
    path = tmp_path / segment_name(0, LOG)
    (tmp_path / "new").write_bytes(path.read_bytes())
    (tmp_path / "new").replace(path)
    assert not segment.is_current()
    assert segment.piece(0, Room(1000), 1000) is not None
    path.unlink()
    assert not segment.is_current()


@pytest.mark.parametrize("wrong", [1, 2, 4, 5, 2**40])
def test_a_base_offset_that_cannot_be_is_a_gap(tmp_path: Path, wrong: int) -> None:
    """It is outside the CRC: only the batches around it and the segment tell. Read in one piece, and in two."""
    bases, batches = write(tmp_path, [[(0, 3), (0, 3)], [(0, 3)]], "none")
    data = bytearray(batches[0].data + batches[1].data)
    data[len(batches[0].data) : len(batches[0].data) + 8] = wrong.to_bytes(8, "big")
    (tmp_path / segment_name(0, LOG)).write_bytes(data)
    for piece_bytes in (len(batches[0].data), 1 << 20):
        walk = Walk(Folder(str(tmp_path)), piece_bytes)
        with pytest.raises(Gap, match="out of order") as found:
            position = 0
            while piece := walk.next(position):
                position = piece.next_offset
        assert found.value.until == bases[1]
