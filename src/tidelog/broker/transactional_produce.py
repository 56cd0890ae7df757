"""Produce requests of transactional producers: what begins a transaction in a partition is verified first (KIP-890).

The coordinator is asked once for all partitions of a request in which its producer is in no transaction yet. While the
answer is awaited, later requests of the same producer wait behind it, so that batches are appended in the order in
which they came. A request that waits owns its bytes; how many wait is bounded by what the ledger allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.broker.context import Parked, RequestContext
from tidelog.broker.deadlines import Deadline
from tidelog.log.errors import LogError
from tidelog.protocol.batch import HEADER_SIZE, TRANSACTIONAL, BatchHeader, read_header
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

Name: TypeAlias = tuple[str, int]
Refusals: TypeAlias = Mapping[Name, LogError]
Run: TypeAlias = Callable[[Refusals, Parked | None], "ProduceResponse | Parked | None"]
"""Appends the batches but those that are refused, and answers: in the place that was parked, if one was."""

_ADDS_FROM: Final = 12
_BY_ID_FROM: Final = 13
_ABORTABLE_FROM: Final = 11
_ATTRIBUTES_LOW_BYTE: Final = 22
_ANSWER_S_MAX: Final = 30.0
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def is_transactional(request: ProduceRequest) -> bool:
    """Whether any batch says so; the batches have not been looked at yet."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records and len(records) >= HEADER_SIZE and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL:
                return True
    return False


def refusal(code: ErrorCode, version: int) -> LogError:
    """What a client of this version is told when its transaction was not verified, as Kafka tells it."""
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    elif code in _TRY_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_FROM):
        # An error that every client tries again, and that makes none ask for metadata.
        return LogError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction could not be verified now: {code.name}")
    return LogError(code, f"the transaction was not verified: {code.name}")


class TransactionalProduces:
    def __init__(self) -> None:
        self._waiting: dict[int, deque[_Waiting]] = {}

    def is_waiting(self, producer_id: int) -> bool:
        return producer_id in self._waiting

    def handle(self, request: ProduceRequest, ctx: RequestContext, run: Run) -> ProduceResponse | Parked | None:
        producers = {(header.producer_id, header.producer_epoch) for _, _, header in _batches(request, ctx)}
        if request.transactional_id is None:
            return run(_all(request, ctx, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), None)
        if len(producers) > 1:
            return run(_all(request, ctx, ErrorCode.INVALID_PRODUCER_ID_MAPPING), None)
        if not producers:
            return run({}, None)
        ((producer_id, epoch),) = producers
        waiting = _Waiting(request, ctx, run, producer_id, epoch, self)
        queue = self._waiting.get(producer_id)
        if queue is None:
            refusals = waiting.ask()
            if refusals is not None:
                return run(refusals, None)
        if ctx.services.ledger.parked_bytes.is_full:
            return run(_all(request, ctx, ErrorCode.NOT_ENOUGH_REPLICAS), None)
        if queue is None:
            queue = self._waiting[producer_id] = deque()
        queue.append(waiting)
        return waiting.park()

    def advance(self, producer_id: int) -> None:
        """The first in line may have its answer: it is appended, and those behind it as far as they need not wait."""
        queue = self._waiting[producer_id]
        while queue:
            if not queue[0].is_ready():
                return
            queue[0].finish()
            queue.popleft()
        del self._waiting[producer_id]


class _Waiting:
    __slots__ = (
        "_asked",
        "_bytes",
        "_ctx",
        "_deadline",
        "_epoch",
        "_is_asked",
        "_is_calling",
        "_owner",
        "_parked",
        "_producer_id",
        "_refusals",
        "_request",
        "_run",
        "_sequences",
    )

    def __init__(
        self,
        request: ProduceRequest,
        ctx: RequestContext,
        run: Run,
        producer_id: int,
        epoch: int,
        owner: TransactionalProduces,
    ) -> None:
        self._request = request
        self._ctx = ctx
        self._run = run
        self._producer_id = producer_id
        self._epoch = epoch
        self._owner = owner
        self._asked: dict[Name, Partition] = {}
        self._sequences: list[int] = []
        self._is_asked = self._is_calling = False
        self._refusals: dict[Name, LogError] | None = None
        self._deadline: Deadline | None = None
        self._parked: Parked | None = None
        self._bytes = 0

    def ask(self) -> Refusals | None:
        """What is refused; None when the coordinator has yet to answer."""
        producer_id, epoch = self._producer_id, self._epoch
        for name, partition, header in _batches(self._request, self._ctx):
            if name not in self._asked and not partition.log.producers.is_in_transaction(producer_id, epoch):
                self._asked[name] = partition
                self._sequences.append(header.base_sequence)
        if not self._asked:
            self._refusals = {}
            return self._refusals
        verifier = self._ctx.services.transactions
        if verifier is None:
            self._is_calling = True
            self._answered(dict.fromkeys(self._asked, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return self._refusals
        adds = self._ctx.version >= _ADDS_FROM
        for partition, sequence in zip(self._asked.values(), self._sequences, strict=True):
            partition.log.producers.verifications.ask(producer_id, epoch, sequence, adds=adds)
        self._is_asked = self._is_calling = True
        transactional_id = self._request.transactional_id
        assert transactional_id is not None
        verifier.verify(transactional_id, producer_id, epoch, list(self._asked), add=adds, done=self._answered)
        self._is_calling = False
        if self._refusals is None:
            self._deadline = self._ctx.services.deadlines.after(_ANSWER_S_MAX, self._timed_out)
        return self._refusals

    def _timed_out(self) -> None:
        """Others wait behind it: nobody may have to wait for ever."""
        self._answered(dict.fromkeys(self._asked, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _answered(self, codes: Mapping[Name, ErrorCode]) -> None:
        if self._refusals is not None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._refusals = {}
        for name, partition in self._asked.items():
            code = codes.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)
            is_ok = code is ErrorCode.NONE
            partition.log.producers.verifications.answer(self._producer_id, self._epoch, ok=is_ok)
            if not is_ok:
                self._refusals[name] = refusal(code, self._ctx.version)
        if self._bytes and not self._is_calling:
            self._owner.advance(self._producer_id)

    def park(self) -> Parked | None:
        """Nothing of the read buffer may be used from here on."""
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytearray(data.records))
                    self._bytes += len(data.records)
        self._ctx.services.ledger.parked_bytes.used += self._bytes
        if self._request.acks != 0:
            self._parked = self._ctx.park()
        return self._parked

    def is_ready(self) -> bool:
        if self._refusals is None and not self._is_asked:
            self.ask()
        return self._refusals is not None

    def finish(self) -> None:
        self._ctx.services.ledger.parked_bytes.used -= self._bytes
        assert self._refusals is not None
        try:
            self._run(self._refusals, self._parked)
        except Exception as error:
            self._ctx.services.failed(error, self._ctx)


def _batches(request: ProduceRequest, ctx: RequestContext) -> Iterator[tuple[Name, Partition, BatchHeader]]:
    """Transactional batches for partitions that are here."""
    for _, partition, records in _data(request, ctx):
        if partition is not None and records is not None and len(records) >= HEADER_SIZE:
            header = read_header(records)
            if header.is_transactional and header.producer_id >= 0:
                yield (partition.topic, partition.index), partition, header


def _data(
    request: ProduceRequest, ctx: RequestContext
) -> Iterator[tuple[Name, Partition | None, bytes | memoryview | None]]:
    partitions, by_id = ctx.services.partitions, ctx.version >= _BY_ID_FROM
    for topic in request.topic_data:
        for data in topic.partition_data:
            if by_id:
                partition = partitions.get_by_id(topic.topic_id, data.index)
            else:
                partition = partitions.get(topic.name, data.index)
            yield (topic.name, data.index), partition, data.records


def _all(request: ProduceRequest, ctx: RequestContext, code: ErrorCode) -> Refusals:
    error = LogError(code, f"the request is refused: {code.name}")
    return {(partition.topic, partition.index): error for _, partition, _ in _data(request, ctx) if partition}
