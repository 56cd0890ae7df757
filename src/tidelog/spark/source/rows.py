"""One part of a partition to Arrow batches: what a task does. Runs in Spark's Python workers.

Raw batches are fetched ahead and decoded natively (decoding.py); no object is made per record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client.aborted import Aborted
from tidelog.client.errors import BrokerError, MissingError
from tidelog.client.metadata import TopicPartition
from tidelog.protocol.batch import iter_headers
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import Columns
from tidelog.spark.link import Link
from tidelog.spark.pump import Chunk, Stretch, TopicChangedError
from tidelog.spark.source.decoding import Decoder
from tidelog.spark.source.loss import report_loss
from tidelog.spark.source.task import Task

MICROSECONDS: Final = pa.timestamp("us", "UTC")
_MS_MAX: Final = (2**63 - 1) // 1000


def read(task: Task) -> Iterator[pa.RecordBatch]:
    """The records of the task in order."""
    with Link(task.kafka, patient=True) as link:
        yield from read_through(link, task)


def read_through(link: Link, task: Task) -> Iterator[pa.RecordBatch]:
    """The same over a link that is open."""
    position = task.start
    decoder = Decoder(str(task))
    while position < task.end:
        try:
            for chunk in _chunks(link, task, position):
                # A log may begin, and a task, in the middle of a batch.
                yield from _batches(chunk, task, position, decoder)
                position = chunk.next_offset
            return
        except (TopicChangedError, MissingError) as error:
            report_loss(f"{task}: {error}", fail=task.fail_on_data_loss)
            return
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            position = _after_loss(link, task, position)


def _chunks(link: Link, task: Task, position: int) -> Iterator[Chunk]:
    if task.log_dirs:
        from tidelog.spark.segments.reading import SegmentReader

        stretch = Stretch(TopicPartition(task.topic, task.partition), position, task.end, task.topic_id)
        return SegmentReader(link, stretch, task.log_dirs, task.isolation, silence_s=task.silence_s).chunks()
    return link.fetch(
        task.topic,
        task.partition,
        position,
        task.end,
        task.isolation,
        topic_id=task.topic_id,
        silence_s=task.silence_s,
    )


def _after_loss(link: Link, task: Task, position: int) -> int:
    """Where to go on when an offset is not in the log any more: at what is left, or nowhere."""
    at = (task.topic, task.partition)
    earliest = link.earliest([at])[at]
    report_loss(f"{task}: the log begins at {earliest}, offset {position} is gone", fail=task.fail_on_data_loss)
    # Behind the log's end: nothing of what was asked for is there.
    return earliest if earliest > position else task.end


def _batches(chunk: Chunk, task: Task, begin: int, decoder: Decoder) -> Iterator[pa.RecordBatch]:
    hidden = _hidden(chunk)
    for columns, first in decoder.portions(chunk.data, chunk.batches):
        rows = _rows(columns, hidden[first : first + columns.batches.count] if hidden else None, task, begin)
        if rows.num_rows:
            yield rows


def _hidden(chunk: Chunk) -> list[bool] | None:
    """For each batch whether it was aborted; None when none was. (Control batches are left out by the decoder.)"""
    if not chunk.aborted:
        return None
    aborted = Aborted(chunk.aborted)
    return [aborted.hides(header) for _, header in iter_headers(chunk.data)]


def _rows(columns: Columns, hidden: list[bool] | None, task: Task, begin: int) -> pa.RecordBatch:
    keep = _kept(columns, hidden, begin, task.end)
    rows = columns.to_arrow(topic=task.topic, partition=task.partition, headers=task.headers, keep=keep)
    index = rows.schema.get_field_index("timestamp")
    return rows.set_column(index, "timestamp", _microseconds(rows.column(index)))


def _kept(columns: Columns, hidden: list[bool] | None, start: int, end: int) -> Any:
    """An entry per record, or None for all of them."""
    offsets = np.asarray(columns.offset)
    keep = None
    if offsets.size and (offsets.min() < start or offsets.max() >= end):
        keep = (offsets >= start) & (offsets < end)
    if hidden is not None:
        shown = ~np.asarray(hidden, np.bool_)[np.asarray(columns.batch)]
        keep = shown if keep is None else keep & shown
    return keep


def _microseconds(times: pa.Array) -> pa.Array:
    """As Spark keeps time. A time that does not fit (somebody wrote nanoseconds) is null: it must not stop a query."""
    try:
        return times.cast(MICROSECONDS)
    except pa.ArrowInvalid:
        numbers = times.cast(pa.int64())
        fits = pc.and_(pc.less_equal(numbers, _MS_MAX), pc.greater_equal(numbers, -_MS_MAX))
        return pc.if_else(fits, numbers, pa.scalar(None, pa.int64())).cast(times.type).cast(MICROSECONDS)
