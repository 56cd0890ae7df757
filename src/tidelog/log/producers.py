"""What the log remembers of idempotent producers: the last five batches of each, to know a retry from a gap, and since
when it is in a transaction.

Owns the rules (Kafka 4: an unknown producer may begin with any sequence) and the snapshots; the log replays batches
into it and asks before it appends.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.kernel.ports import Disk
from tidelog.log.deleting import rename_deleted
from tidelog.log.errors import CorruptFileError, LogError
from tidelog.log.names import SNAPSHOT, segment_name
from tidelog.log.producer_snapshot import SnapshotEntry, SnapshotFields, decode_snapshot, encode_snapshot
from tidelog.log.transactions import Marker
from tidelog.log.verification import Verifications
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, increment_sequence
from tidelog.protocol.errors import ErrorCode

BATCHES_KEPT: Final = 5
PRODUCERS_MAX: Final = 250_000
"""Of one partition: a hundred megabytes. Whoever then comes takes the place of one that has been silent for long: that
one may come back with any sequence, as after producer.id.expiration.ms."""
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_EPOCH_BUMPS_FROM: Final = 2
_new_tuple: Final = tuple.__new__


class ProducerBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerState:
    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "epoch", "flag", "last_timestamp", "used")

    def __init__(self, epoch: int) -> None:
        self.used = False
        self.epoch = epoch
        self.batches: list[ProducerBatch] = []
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.current_txn_first_offset = -1
        self.flag = 0
        """What the attributes of its next batch must say: TRANSACTIONAL while it is in a transaction."""


class ProducerStates:
    __slots__ = ("_directory", "_disk", "_producers", "_snapshots", "end_offset", "open_since", "verifications")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._producers: dict[int, ProducerState] = {}
        self.open_since: dict[int, int] = {}
        """First offsets of open transactions by producer, in their order. Always the same object."""
        self.verifications = Verifications()
        self._snapshots: list[int] = []
        self.end_offset = 0

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    def items(self) -> list[tuple[int, ProducerState]]:
        return list(self._producers.items())

    # The rules

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """None when the batch may be appended, the earlier one when it is a retry of that; LogError otherwise."""
        state = self._producers.get(header.producer_id)
        if state is None:
            if header.attributes & TRANSACTIONAL:
                self._check_may_begin(header)
                if len(self.open_since) >= PRODUCERS_MAX:
                    # Clients try that again, and transactions end at the latest when their time is up.
                    raise LogError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{PRODUCERS_MAX} producers are in a transaction")
            return None
        first = header.base_sequence
        batches = state.batches
        if (
            batches
            and first == batches[-1][1] + 1
            and header.producer_epoch == state.epoch
            and header.attributes & TRANSACTIONAL == state.flag
        ):
            return None  # the usual case: the next one
        earlier = self._check_sequence(header, state, first)
        if earlier is None:
            self._check_transaction(header, state)
        elif header.attributes & TRANSACTIONAL and not 0 <= state.current_txn_first_offset <= earlier.first_offset:
            # Nobody waits for the answer of a transaction that is over. A client that aborted before an answer had come
            # gives the same number to the next message (librdkafka; chaos, W3 667602): as a retry it would be lost.
            raise LogError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {first} again, of a transaction that is over",
            )
        return earlier

    def _check_sequence(self, header: BatchHeader, state: ProducerState, first: int) -> ProducerBatch | None:
        batches = state.batches
        if header.producer_epoch != state.epoch:
            if header.producer_epoch < state.epoch:
                raise _old_epoch(header.producer_id, header.producer_epoch, state.epoch)
            expected = 0
        else:
            expected = (batches[-1].last_sequence + 1) & _SEQUENCE_MASK if batches else 0
            if first != expected:
                last = increment_sequence(first, header.last_offset_delta)
                for batch in batches:
                    if batch.first_sequence == first and batch.last_sequence == last:
                        return batch
        if first != expected:
            raise LogError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {first}, expected {expected}",
            )
        return None

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a batch of this producer goes on with an open transaction: nobody need be asked."""
        state = self._producers.get(producer_id)
        return state is not None and state.current_txn_first_offset >= 0 and state.epoch == epoch

    def _check_transaction(self, header: BatchHeader, state: ProducerState) -> None:
        is_open = state.current_txn_first_offset >= 0
        if not header.attributes & TRANSACTIONAL:
            if is_open:
                raise LogError(
                    ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} is in a transaction, the batch is not"
                )
        elif not is_open or state.epoch != header.producer_epoch:
            if state.batches:
                # It follows the last one, so none is missing: a retry of that may have asked before it.
                self._check_is_verified(header)
            else:
                self._check_may_begin(header)

    def _check_may_begin(self, header: BatchHeader) -> None:
        """The first batch that is known of its producer: one before it may be missing."""
        self._check_is_verified(header)
        if not self.verifications.may_begin(header.producer_id, header.base_sequence):
            raise LogError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} cannot begin a transaction with sequence {header.base_sequence}",
            )

    def _check_is_verified(self, header: BatchHeader) -> None:
        """KIP-890: what begins a transaction that the coordinator does not know of would stay open for ever."""
        if not self.verifications.is_verified(header.producer_id, header.producer_epoch):
            raise LogError(ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} is in no transaction here")

    def check_coordinator_batch(self, header: BatchHeader) -> None:
        """What a coordinator writes for a producer has no sequences; its epoch counts."""
        state = self._producers.get(header.producer_id)
        if state is not None and header.producer_epoch < state.epoch:
            raise _old_epoch(header.producer_id, header.producer_epoch, state.epoch)
        if not self.is_in_transaction(header.producer_id, header.producer_epoch):
            self._check_is_verified(header)

    def check_marker(self, marker: Marker) -> bool:
        """Whether it was written before, and need not be again; LogError when it may not be. With version 2 a marker
        has a newer epoch than the data that it ends, so a late one of the transaction before cannot end this one."""
        state = self._producers.get(marker.producer_id)
        if state is None:
            return False
        if marker.producer_epoch < state.epoch:
            raise _old_epoch(marker.producer_id, marker.producer_epoch, state.epoch)
        if marker.transaction_version >= _EPOCH_BUMPS_FROM and marker.producer_epoch == state.epoch:
            if state.current_txn_first_offset >= 0:
                raise _old_epoch(marker.producer_id, marker.producer_epoch, state.epoch)
            return state.coordinator_epoch >= 0
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise LogError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {state.coordinator_epoch}",
            )
        return False

    def appended(self, header: BatchHeader, base_offset: int, last_offset: int) -> None:
        """Remember a data batch of a producer."""
        state = self._producers.get(header.producer_id)
        if state is None:
            state = self._add(header)
        elif state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches = []
            state.used = True
        else:
            state.used = True
        first = header.base_sequence
        last = (first + last_offset - base_offset) & _SEQUENCE_MASK
        batches = state.batches
        timestamp = header.max_timestamp
        batches.append(_new_tuple(ProducerBatch, (first, last, base_offset, last_offset, timestamp)))
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        state.last_timestamp = timestamp
        if header.attributes & TRANSACTIONAL and state.current_txn_first_offset < 0:
            state.current_txn_first_offset = base_offset
            state.flag = TRANSACTIONAL
            self.open_since[header.producer_id] = base_offset
            self.verifications.end(header.producer_id)

    def marked(self, header: BatchHeader, coordinator_epoch: int) -> int:
        """Remember the end of a transaction; where it began, -1 when it had no data here. A marker with a newer epoch
        lets the sequences begin again at 0."""
        state = self._producers.get(header.producer_id)
        if state is None:
            state = self._add(header)
        elif state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches = []
        first_offset = state.current_txn_first_offset
        state.current_txn_first_offset = -1
        state.flag = 0
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp = header.max_timestamp
        self.open_since.pop(header.producer_id, None)
        self.verifications.end(header.producer_id)
        return first_offset

    def forget_transactions(self) -> None:
        """Nobody can tell whether those that were open still are; of their data nothing is left."""
        for producer_id in self.open_since:
            state = self._producers[producer_id]
            state.current_txn_first_offset = -1
            state.flag = 0
        self.open_since.clear()

    def stable_offset(self, end_offset: int) -> int:
        """Where the first open transaction begins, the end of the log when there is none."""
        return next(iter(self.open_since.values()), end_offset)

    def replay(self, header: BatchHeader) -> None:
        """Learn from a data batch that is in the log already."""
        if header.producer_id >= 0 and not header.attributes & CONTROL:
            self.appended(header, header.base_offset, header.last_offset)

    def _add(self, header: BatchHeader) -> ProducerState:
        if len(self._producers) >= PRODUCERS_MAX:
            self._make_room()
        state = self._producers[header.producer_id] = ProducerState(header.producer_epoch)
        return state

    def _make_room(self) -> None:
        """The first in line goes, unless it was heard of since it came there or is in a transaction: then it goes to
        the end of the line, once."""
        producers = self._producers
        for _ in range(len(producers)):
            producer_id = next(iter(producers))
            state = producers.pop(producer_id)
            if not state.used and state.current_txn_first_offset < 0:
                return
            state.used = False
            producers[producer_id] = state
        # All were heard of since: the first that is in no transaction. A transaction is never forgotten.
        for producer_id, state in producers.items():
            if state.current_txn_first_offset < 0:
                del producers[producer_id]
                return

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget who has been silent for so long and is in no transaction; how many that were."""
        gone = [
            producer_id
            for producer_id, state in self._producers.items()
            if state.current_txn_first_offset < 0 and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    # Snapshots

    def note_snapshots(self, offsets: list[int]) -> None:
        """Tell which snapshot files are there, in order."""
        self._snapshots = offsets

    @property
    def snapshots(self) -> tuple[int, ...]:
        return tuple(self._snapshots)

    def load(self, end_offset: int) -> int:
        """Take the newest snapshot that is whole and not beyond the end; the rest of the log must then be replayed,
        also what lies before the log's start: who wrote it may go on. The offset of the snapshot, 0 without one."""
        self.remove_snapshots_after(end_offset)
        while self._snapshots:
            offset = self._snapshots[-1]
            data = self._disk.read_file(self._path(offset))
            try:
                entries = decode_snapshot(data if data is not None else b"")
            except CorruptFileError:
                self._remove(offset)
                continue
            self._take(entries)
            self.end_offset = offset
            return offset
        self._take([])
        self.end_offset = 0
        return 0

    def _take(self, entries: list[SnapshotEntry]) -> None:
        self._producers = {entry.producer_id: _from_snapshot(entry) for entry in entries}
        is_open = [entry for entry in entries if entry.current_txn_first_offset >= 0]
        is_open.sort(key=lambda entry: entry.current_txn_first_offset)
        self.open_since.clear()
        self.open_since.update((entry.producer_id, entry.current_txn_first_offset) for entry in is_open)

    def take_snapshot(self, offset: int) -> str | None:
        """Write the state as of the offset; the path, None when there is nothing to write or it is there already."""
        self.end_offset = offset
        if offset == 0 or (self._snapshots and self._snapshots[-1] >= offset):
            return None
        data = encode_snapshot([_to_snapshot(producer_id, state) for producer_id, state in self._producers.items()])
        path = self._path(offset)
        self._disk.replace_file(path, data, durable=False)
        self._snapshots.append(offset)
        return path

    def remove_snapshots_after(self, offset: int) -> None:
        self._remove_all([snapshot for snapshot in self._snapshots if snapshot > offset])

    def remove_strays(self, base_offsets: set[int], loaded: int) -> None:
        """Keep one for each segment, and the one that was loaded: the batches that it tells of may have expired."""
        self._remove_all([offset for offset in self._snapshots if offset not in base_offsets and offset != loaded])

    def mark_deleted(self, offset: int) -> list[str]:
        """Rename the snapshot of a segment that goes; the path it has now."""
        if offset not in self._snapshots:
            return []
        self._snapshots.remove(offset)
        return rename_deleted(self._disk, self._path(offset))

    def _remove_all(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._remove(offset)

    def _remove(self, offset: int) -> None:
        self._snapshots.remove(offset)
        self._disk.remove(self._path(offset))

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_name(offset, SNAPSHOT)}"


def _old_epoch(producer_id: int, epoch: int, known: int) -> LogError:
    return LogError(ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {known} here, not {epoch}")


def _from_snapshot(entry: SnapshotEntry) -> ProducerState:
    state = ProducerState(entry.producer_epoch)
    state.last_timestamp = entry.timestamp
    state.coordinator_epoch = entry.coordinator_epoch
    state.current_txn_first_offset = entry.current_txn_first_offset
    state.flag = TRANSACTIONAL if entry.current_txn_first_offset >= 0 else 0
    if entry.last_sequence >= 0:
        first_sequence = (entry.last_sequence - entry.offset_delta) & _SEQUENCE_MASK
        first_offset = entry.last_data_offset - entry.offset_delta
        state.batches.append(
            ProducerBatch(first_sequence, entry.last_sequence, first_offset, entry.last_data_offset, entry.timestamp)
        )
    return state


def _to_snapshot(producer_id: int, state: ProducerState) -> SnapshotFields:
    """A plain tuple in the order of SnapshotEntry: a snapshot is made on the loop, and a hundred thousand may be in
    it."""
    epoch, timestamp, coordinator_epoch = state.epoch, state.last_timestamp, state.coordinator_epoch
    if not state.batches:
        return producer_id, epoch, -1, -1, 0, timestamp, coordinator_epoch, state.current_txn_first_offset
    _, last_sequence, first, last, _ = state.batches[-1]
    return (
        producer_id,
        epoch,
        last_sequence,
        last,
        last - first,
        timestamp,
        coordinator_epoch,
        state.current_txn_first_offset,
    )
