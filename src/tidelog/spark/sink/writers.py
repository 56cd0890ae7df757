"""Spark's two kinds of writers. Tasks write into transactions of their own; the driver ends those that Spark chose.

Spark makes a writer per micro-batch, in the process that plans, and another in the process that commits. That one lives
as long as the session, so what it knows of a sink is kept between epochs.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tidelog.spark.link import Link
from tidelog.spark.sink.committing import Committer, Step, nothing
from tidelog.spark.sink.journal import FencedError, Journal, SinkError
from tidelog.spark.sink.options import SinkOptions
from tidelog.spark.sink.receipts import Receipt, receipts_of

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger(__name__)
_QUERY: Final = "sql.streaming.queryId"
_RUN: Final = "spark.jobGroup.id"
_known: dict[tuple[str, ...], Journal] = {}
"""By brokers, state topic and sink."""


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark has no types here
    step: Step = staticmethod(nothing)

    def __init__(self, options: SinkOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from tidelog.spark.sink.task import write_rows

        context = TaskContext.get()
        query, run = (context.getLocalProperty(name) for name in (_QUERY, _RUN))
        if not query:
            raise SinkError(f"Spark does not tell the query's id ({_QUERY}); without it an epoch cannot be known again")
        return write_rows(iterator, self._options, self._names, query, _attempt(context, run or ""))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit_known(self._options, receipts_of(messages), batchId, self.step)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        abort(self._options, receipts_of(messages))


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark has no types here
    step: Step = staticmethod(nothing)

    def __init__(self, options: SinkOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names
        self._sink = options.app_id or secrets.token_hex(16)
        self._run = secrets.token_hex(8)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from tidelog.spark.sink.task import write_rows

        attempt = _attempt(TaskContext.get(), self._run)
        return write_rows(iterator, self._options, self._names, self._sink, attempt)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        receipts = receipts_of(messages)
        if self._options.app_version is not None:
            commit_known(self._options, receipts, self._options.app_version, self.step, moves=True)
        elif receipts:
            with Link(self._options.kafka, patient=True) as link:
                Committer(link, self._options, self._sink, self.step).commit_once(receipts)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort(self._options, receipts_of(messages))


def commit_known(
    options: SinkOptions, receipts: Sequence[Receipt], epoch: int, step: Step, *, moves: bool = False
) -> None:
    """An epoch that may come again. `moves`: the next one may be committed in another process of Spark's, and the one
    after it here again, as batch writes of one driver are; what is known here is out of date then."""
    if not receipts:
        return
    sink = receipts[0].sink
    key = (options.kafka["bootstrap.servers"], options.state_topic, options.prefix, sink)
    if key in _known and not any(receipt.spans for receipt in receipts):
        return
    with Link(options.kafka, patient=True) as link:
        committer = Committer(link, options, sink, step)
        # Whatever goes wrong, the next one looks anew.
        known = _known.pop(key, None)
        try:
            committer.commit_epoch(epoch, receipts, known)
        except FencedError:
            if known is None or not moves:
                raise
            committer = Committer(link, options, sink, step)
            committer.commit_epoch(epoch, receipts)
        _known[key] = committer.journal


def abort(options: SinkOptions, receipts: Sequence[Receipt]) -> None:
    """Spark gives up an epoch. It hears nothing of what goes wrong here: transactions end by themselves."""
    if not receipts:
        return
    try:
        with Link(options.kafka) as link:
            Committer(link, options, receipts[0].sink).abort(receipts)
    except Exception:
        _LOG.exception("the transactions of %s could not be aborted", receipts[0].sink)


def _attempt(context: TaskContext, run: str) -> str:
    """Two attempts at a task must never share a transactional id: the second would abort what the first has done and
    Spark has chosen. Nor two runs: what the first has decided and not yet ended must stay open for the second."""
    return f"{run[:8]}.{context.partitionId()}.{context.attemptNumber()}"
