"""Which transactions were aborted, by the markers in two segment files that nobody else writes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow")

from tidelog.client.fetching import AbortedTransaction
from tidelog.log.names import LOG, segment_name
from tidelog.log.transactions import Marker, marker_batch
from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, assign_offsets, build_batch
from tidelog.spark.segments.bounds import Lineage
from tidelog.spark.segments.folder import Folder, Gap
from tidelog.spark.segments.markers import Markers
from tidelog.spark.segments.walk import Walk


class Trusting:
    """A leader that has every batch."""

    def check(self, batches: Any) -> None:
        pass


def data(producer: int, base: int) -> bytes:
    inputs = [RecordInput(b"k", b"v", 5)] * 2
    return bytes(build_batch(inputs, base_offset=base, attributes=TRANSACTIONAL, producer_id=producer))


def marker(producer: int, base: int, *, committed: bool) -> bytes:
    batch = marker_batch(Marker(producer, 0, 0, committed, 2), 5)
    assign_offsets(batch, base, 0)
    return bytes(batch)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """One transaction ends in its file, two in the next one; the aborted producer commits another later on."""
    first = data(7, 0) + data(8, 2) + marker(8, 4, committed=False) + data(8, 5) + data(9, 7)
    second = marker(7, 9, committed=False) + marker(8, 10, committed=True) + marker(9, 11, committed=True)
    (tmp_path / segment_name(0, LOG)).write_bytes(first)
    (tmp_path / segment_name(9, LOG)).write_bytes(second + data(7, 12) + marker(7, 14, committed=True))
    return Folder(str(tmp_path))


@pytest.mark.parametrize("piece_bytes", [100, 1 << 20])
def test_the_first_marker_behind_a_batch_decides(folder: Folder, piece_bytes: int) -> None:
    walk = Walk(folder, piece_bytes)
    markers = Markers(Walk(folder, piece_bytes, check_crc=False), cast(Lineage, Trusting()))
    found: set[AbortedTransaction] = set()
    position = 0
    while position < 15:
        piece = walk.next(position)
        assert piece is not None
        assert walk.segment is not None
        found.update(markers.aborted(piece, walk.segment))
        position = piece.next_offset
    assert found == {AbortedTransaction(7, 0), AbortedTransaction(8, 2)}


def test_markers_of_another_file_do_not_count_for_one_that_was_replaced(folder: Folder) -> None:
    """The cleaner may have taken out the marker that aborted what only the old file still has."""
    walk = Walk(folder, 1 << 20)
    piece = walk.next(0)
    assert piece is not None
    assert walk.segment is not None
    path = Path(folder.path) / segment_name(0, LOG)
    path.with_suffix(".swap").write_bytes(b"")
    path.with_suffix(".swap").replace(path)
    second = Path(folder.path) / segment_name(9, LOG)
    second.write_bytes(second.read_bytes().replace(marker(7, 9, committed=False), b""))
    markers = Markers(Walk(folder, 1 << 20, check_crc=False), cast(Lineage, Trusting()))
    with pytest.raises(Gap, match="was replaced while it was read") as found:
        markers.aborted(piece, walk.segment)
    assert found.value.until == 9
