"""Rows whose transaction was aborted after the decision to commit it: they still lie in the log, and are written again.

A transaction may run out of time, or be fenced, between the decision and its end: a driver died there and came back
after transaction.timeout.ms. Only readers of committed records do not see what it wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producing import produce
from tidelog.client.transactional import Identity, Transactions
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import (
    APPEND_TIME,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    increment_sequence,
    iter_headers,
    set_crc,
)
from tidelog.spark.link import Link
from tidelog.spark.sink.journal import SinkError
from tidelog.spark.sink.markers import marker_commits
from tidelog.spark.sink.receipts import Receipt, Span

_MARKER_WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.05


def was_committed(link: Link, receipt: Receipt) -> bool:
    """How a transaction that is over has ended, by the first marker behind its records in one partition."""
    span = receipt.spans[0]
    deadline_s = link.ask(_now_s) + _MARKER_WAIT_S
    position = span.last
    while True:
        start = link.earliest([span.at])[span.at]
        if start > span.last:
            raise _lost(span, f"the log begins at {start} by now")
        end = link.latest([span.at], "read_uncommitted")[span.at]
        for chunk in link.fetch(*span.at, position, end, "read_uncommitted"):
            for at, header in iter_headers(chunk.data):
                if header.producer_id == receipt.identity.producer_id and header.base_offset > span.last:
                    committed = marker_commits(chunk.data[at : at + header.size], header)
                    if committed is not None:
                        return committed
        position = max(position, end)
        if link.ask(_now_s) > deadline_s:
            raise _lost(span, f"no marker of producer {receipt.identity.producer_id} follows them")
        link.ask(lambda _: asyncio.sleep(_PAUSE_S))


def rewrite(link: Link, receipts: Sequence[Receipt], transactional_id: str, identity: Identity) -> None:
    """The rows of these receipts into a transaction that is under way. SinkError unless all of them are there."""
    spans = [(receipt, span) for receipt in receipts for span in receipt.spans]
    partitions = sorted({span.at for _, span in spans})
    link.ask(lambda cluster: Transactions(cluster).add(transactional_id, identity, partitions))
    sequences = dict.fromkeys(partitions, 0)
    for receipt, span in spans:
        found = 0
        for header, batch in _batches(link, receipt.identity, span):
            copy = _copy(header, batch, identity, sequences[span.at])
            link.ask(lambda cluster, at=span.at, copy=copy: _send(cluster, at, copy, transactional_id))  # type: ignore[misc]
            sequences[span.at] = increment_sequence(sequences[span.at], header.record_count)
            found += header.record_count
        if found != span.records:
            raise _lost(span, f"{found} of its {span.records} records are left in the log")


def _batches(link: Link, identity: Identity, span: Span) -> Iterator[tuple[BatchHeader, Buffer]]:
    if link.earliest([span.at])[span.at] > span.first:
        return
    for chunk in link.fetch(*span.at, span.first, span.last + 1, "read_uncommitted"):
        for at, header in iter_headers(chunk.data):
            is_ours = (header.producer_id, header.producer_epoch) == tuple(identity) and not header.is_control
            if is_ours and span.first <= header.base_offset <= span.last:
                yield header, chunk.data[at : at + header.size]


def _copy(header: BatchHeader, batch: Buffer, identity: Identity, sequence: int) -> bytearray:
    """The same records as a batch of another producer."""
    fresh = header._replace(
        base_offset=0,
        leader_epoch=-1,
        attributes=(header.attributes | TRANSACTIONAL) & ~(APPEND_TIME | DELETE_HORIZON),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
    )
    copy = bytearray(batch)
    copy[:HEADER_SIZE] = HEADER.pack(*fresh)
    set_crc(copy)
    return copy


async def _send(cluster: Cluster, at: TopicPartition, batch: bytearray, transactional_id: str) -> None:
    await produce(cluster, at, batch, transactional_id=transactional_id)


async def _now_s(cluster: Cluster) -> float:
    return cluster.clock.monotonic_s()


def _lost(span: Span, why: str) -> SinkError:
    return SinkError(
        f"{span.records} records at the offsets {span.first} to {span.last} of {span.at} were decided to be committed, "
        f"their transaction is over, and {why}"
    )
