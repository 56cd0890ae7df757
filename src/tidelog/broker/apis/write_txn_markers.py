"""WriteTxnMarkers (27), versions 1-2. v1 flexible, v2 transaction version (KIP-1228). Sent by the transaction
coordinators of other brokers, and by an administrator who aborts a transaction that hangs."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.deadlines import Deadline
from tidelog.log.transactions import Marker
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tidelog.replication.markers import write_marker

_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_Partition = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
_TIMEOUT_S: Final = 30.0


def handle(request: WriteTxnMarkersRequest, ctx: RequestContext) -> Parked:
    return _Writing(request, ctx).parked


class _Writing:
    """All markers of a request, until the last is committed or time is up."""

    def __init__(self, request: WriteTxnMarkersRequest, ctx: RequestContext) -> None:
        self.parked = ctx.park()
        self._response = WriteTxnMarkersResponse()
        self._open: dict[int, _Partition] = {}
        self._deadline: Deadline | None = None
        self._is_writing = True
        for asked in request.markers:
            self._write(asked, ctx)
        self._is_writing = False
        if self._open:
            self._deadline = ctx.services.deadlines.after(_TIMEOUT_S, self._timed_out)
        else:
            self.parked.answer(self._response)

    def _write(self, asked: WriteTxnMarkersRequest.WritableTxnMarker, ctx: RequestContext) -> None:
        marker = Marker(
            asked.producer_id,
            asked.producer_epoch,
            asked.coordinator_epoch,
            asked.transaction_result,
            asked.transaction_version,
        )
        result = _Result(producer_id=asked.producer_id)
        self._response.markers.append(result)
        partitions, now_ms = ctx.services.partitions, ctx.services.clock.wall_ms()
        for topic in asked.topics:
            told = _Topic(name=topic.name)
            result.topics.append(told)
            for index in topic.partition_indexes:
                answer = _Partition(partition_index=index)
                told.partitions.append(answer)
                partition = partitions.get(topic.name, index)
                if partition is None:
                    answer.error_code = partitions.why_missing(topic.name, index)
                elif marker.producer_id < 0 or marker.producer_epoch < 0:
                    answer.error_code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
                else:
                    self._open[id(answer)] = answer
                    write_marker(partition, marker, now_ms, partial(self._done, answer))

    def _done(self, answer: _Partition, code: ErrorCode) -> None:
        if self._open.pop(id(answer), None) is not None:
            answer.error_code = code
            if not self._open and not self._is_writing:
                self._answer()

    def _timed_out(self) -> None:
        for answer in self._open.values():
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._open.clear()
        self._answer()

    def _answer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.parked.answer(self._response)


API = Api(key=27, versions=range(1, 3), handle=handle)
