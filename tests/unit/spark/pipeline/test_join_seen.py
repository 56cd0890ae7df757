"""Records that are in several rows count once, whatever batches they come in."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.pipeline.join_audit import Seen

PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 12))


def batch_of(places: list[tuple[str, int, int]]) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*places, strict=True) if places else ((), (), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(topics, pa.string()), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())],
        names=["topic", "partition", "offset"],
    )


@given(st.lists(st.lists(PLACES, max_size=20), max_size=5))
def test_each_record_is_met_once(batches: list[list[tuple[str, int, int]]]) -> None:
    met: set[tuple[str, int, int]] = set()
    for places, found in zip(batches, Seen().each(batch_of(places) for places in batches), strict=True):
        rows = [tuple(row.values()) for row in found.to_pylist()]
        assert len(set(rows)) == len(rows)
        assert set(rows) == set(places) - met
        met |= set(places)
