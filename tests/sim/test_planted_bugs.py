"""The simulation can fail: each bug is planted here, by the test, and must be caught within a few seeds by the rule
that it breaks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.sim.groups_workload import run_groups
from tests.sim.metadata_workload import run_metadata
from tests.sim.transactions_workload import Plan, run_compacted, run_late_requests, run_plan, run_transactions
from tests.sim.workload import run_bad_disk, run_full_disk, run_power_cuts, run_torn, run_workload
from tidelog.coordinator.decision import Decision
from tidelog.coordinator.group.commit import Commit
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.txn_commit import TxnCommit
from tidelog.coordinator.shard import Shard
from tidelog.coordinator.txn import ending, init
from tidelog.coordinator.txn.coordinator import TransactionCoordinator
from tidelog.coordinator.txn.machine import TransactionMachine
from tidelog.coordinator.txn.transaction import Needs
from tidelog.kernel.ports import File
from tidelog.log import loading, scan, segment
from tidelog.log.cleaning import keeping
from tidelog.log.cleaning.transactions import CleanedTransactions
from tidelog.log.directory import METADATA_DIR, LogDirectory
from tidelog.log.producers import ProducerStates
from tidelog.log.readable_log import ReadableLog
from tidelog.log.unsynced import Unsynced
from tidelog.protocol.errors import ErrorCode
from tidelog.raft import quorum
from tidelog.replication.partition import Partition
from tidelog.replication.syncing import SyncRounds
from tidelog.sim.disk import SimFile
from tidelog.sim.loop import run

SEEDS = 40
LOST = r"is lost|was seen once and is gone|the high watermark went back|offset \d+ was .* and is|is gone, and the log"
"""What clients notice when something that they were told, or had read, is not there any more."""


def assert_caught(workload: Callable[[int], Coroutine[Any, Any, object]], rule: str, seeds: int = SEEDS) -> None:
    """The first failure within the seeds is one of this rule."""
    for seed in range(seeds):
        try:
            run(workload(seed), seed)
        except Exception as error:
            assert re.search(rule, str(error)), f"caught by something else: {error!r}"
            return
    pytest.fail(f"{seeds} seeds did not notice")


# Syncs


def test_high_watermark_ahead_of_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledged, and read, before the sync has begun."""
    want = SyncRounds.want

    def eager(self: SyncRounds, log: Any, new_bytes: int, on_synced: Callable[[int, int], None]) -> None:
        want(self, log, new_bytes, on_synced)
        on_synced(log.log_end_offset, new_bytes)

    monkeypatch.setattr(SyncRounds, "want", eager)
    assert_caught(run_power_cuts, LOST)


def test_a_round_that_tells_success_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = SyncRounds._sync

    def hasty(self: SyncRounds, rounds: Any) -> asyncio.Future[None]:
        sync(self, rounds)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    monkeypatch.setattr(SyncRounds, "_sync", hasty)
    assert_caught(run_power_cuts, LOST)


def test_a_sync_error_that_is_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """M16."""
    done = SyncRounds._done

    def deaf(self: SyncRounds, future: asyncio.Future[None], *rest: Any) -> None:
        fine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fine.set_result(None)
        future.exception()
        done(self, fine, *rest)

    monkeypatch.setattr(SyncRounds, "_done", deaf)
    assert_caught(run_bad_disk, LOST)


def test_names_that_are_never_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that was rolled to has its content synced and its name not."""
    add = Unsynced.add
    monkeypatch.setattr(Unsynced, "add", lambda self, files=(), directories=(): add(self, files))
    assert_caught(run_power_cuts, f"was synced|{LOST}")


def test_a_recovery_point_ahead_of_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it vouches for is missing after a power cut: the log is not opened as if nothing were."""
    begin = LogDirectory.checkpoint_begin

    def ahead(self: LogDirectory, *args: Any) -> Any:
        for log in self.partitions.values():
            log.recovery_point = log.log_end_offset
        return begin(self, *args)

    monkeypatch.setattr(LogDirectory, "checkpoint_begin", ahead)
    assert_caught(run_power_cuts, f"was synced|damaged|{LOST}")


def test_a_commit_that_is_answered_before_its_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: Shard[Any], end: int, settles: list[Any], now: Any) -> None:
        for settle in settles:
            settle(ErrorCode.NONE, now)

    monkeypatch.setattr(Shard, "_when_committed", at_once)
    assert_caught(run_power_cuts, r"committer committed \d+, found \d+")


def test_metadata_acknowledged_before_its_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_sync(*_: Any) -> int:
        return 0

    monkeypatch.setattr(quorum, "flush", no_sync)
    assert_caught(run_metadata, "expected one of")


# Recovery


def test_recovery_that_checks_no_crc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with a sector of zeros is taken for whole. Only in the logs of partitions: the start reads the metadata's
    records itself, and what it says of a damaged one is no rule of the clients."""
    real = segment.scan_batches

    def blind(file: File, *args: Any) -> Iterator[Any]:
        with monkeypatch.context() as planted:
            if f"/{METADATA_DIR}/" not in file.path:
                planted.setattr(scan, "crc_is_valid", lambda batch, header: True)
            return iter(list(real(file, *args)))

    monkeypatch.setattr(segment, "scan_batches", blind)
    assert_caught(run_torn, f"a damaged batch was served|which nobody wrote|CORRUPT_MESSAGE|{LOST}")


def test_recovery_that_cuts_one_batch_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """M20: one acknowledged batch is missing from the log, and the checker knows."""
    real = segment.scan_batches

    def short(*args: Any) -> Iterator[Any]:
        found = list(real(*args))
        yield from found[:-1] if len(found) > 1 else found

    monkeypatch.setattr(segment, "scan_batches", short)
    assert_caught(run_workload, f"{LOST}|was synced|ends before offset|OUT_OF_ORDER_SEQUENCE_NUMBER")


def test_producer_state_not_rebuilt_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """M7: the broker starts with no memory of who wrote what."""

    def forget(producers: ProducerStates, segments: object, end: int, **_: bool) -> tuple[list[str], int]:
        producers.end_offset = end
        return [], 0

    monkeypatch.setattr(loading, "replay_producers", forget)
    monkeypatch.setattr(ProducerStates, "load", lambda self, end: 0)
    monkeypatch.setattr(ProducerStates, "check", accept_unknown(ProducerStates.check))
    assert_caught(run_workload, "twice or out of order")


def test_producer_snapshot_not_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """M7: only what lies behind the snapshot is known, so an older producer is a stranger."""
    load = ProducerStates.load

    def lose(self: ProducerStates, end_offset: int) -> int:
        offset = load(self, end_offset)
        self._producers.clear()
        return offset

    monkeypatch.setattr(ProducerStates, "load", lose)
    monkeypatch.setattr(ProducerStates, "check", accept_unknown(ProducerStates.check))
    assert_caught(run_workload, "twice or out of order")


def accept_unknown(check: Callable[..., Any]) -> Callable[..., Any]:
    """A broker that has forgotten a producer takes whatever sequence it sends first."""

    def lenient(self: ProducerStates, header: Any) -> Any:
        return check(self, header) if self.get(header.producer_id) is not None else None

    return lenient


def test_a_snapshot_that_leaves_out_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    """M19."""
    from tidelog.controller import controller
    from tidelog.protocol.messages.records_metadata import ConfigRecord

    real = controller.image_records
    monkeypatch.setattr(
        controller, "image_records", lambda image: (r for r in real(image) if not isinstance(r, ConfigRecord))
    )
    assert_caught(run_metadata, "expected one of")


# Serving


def test_reads_beyond_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """M14."""

    def greedy(self: Partition, offset: int, max_bytes: int, **options: Any) -> Any:
        options.pop("committed", None)
        return self.log.read(offset, max_bytes, end_offset=self.log.log_end_offset, **options)

    monkeypatch.setattr(Partition, "read", greedy)
    assert_caught(run_power_cuts, f"is behind the high watermark|{LOST}")


def test_a_short_write_that_is_not_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    truncate = SimFile.truncate

    def keep(self: SimFile, size: int) -> None:
        if not self.path.endswith(".log") or size == 0:
            truncate(self, size)

    monkeypatch.setattr(SimFile, "truncate", keep)
    assert_caught(run_full_disk, f"damaged|CORRUPT_MESSAGE|UNKNOWN_SERVER_ERROR|does not match its checksum|{LOST}")


# Groups


def test_a_partition_that_is_given_before_it_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """M12."""
    monkeypatch.setattr(ConsumerGroup, "owner", lambda self, topic_id, partition: None)
    assert_caught(run_groups, "is owned by two")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_commit_of_an_old_generation(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    """M13: once for each protocol, by the epoch of the member and by the generation of the group."""
    check = Commit.check

    def deaf(self: Commit, group: Any) -> ErrorCode:
        is_planted = isinstance(group, ConsumerGroup) == (protocol == "consumer")
        return ErrorCode.NONE if is_planted else check(self, group)

    monkeypatch.setattr(Commit, "check", deaf)
    assert_caught(run_groups, "was accepted, and .* has owned it since|expected one of")


# Transactions

NOT_ALL_OR_NOTHING = "was read as committed|is read as committed|is torn|was committed, and lacks|a transaction hangs"


def test_an_end_of_an_old_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """M8: a producer that was replaced ends the transaction of the one that replaced it."""
    end = ending.end

    def lenient(transaction: Any, producer: Any, *args: Any) -> Any:
        if transaction is not None:
            producer = producer._replace(epoch=transaction.value.producer_epoch)
        return end(transaction, producer, *args)

    monkeypatch.setattr(ending, "end", lenient)
    assert_caught(run_transactions, f"EndTxn of life .* was served|{NOT_ALL_OR_NOTHING}")


def test_a_first_produce_that_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """M9: one that comes late begins a transaction that nobody ends, or becomes part of the next."""
    verify = TransactionCoordinator.verify

    def trust(self: TransactionCoordinator, *args: Any, add: bool, done: Any) -> None:
        if add:
            verify(self, *args, add=add, done=done)
        else:
            done(dict.fromkeys(args[3], ErrorCode.NONE))

    monkeypatch.setattr(TransactionCoordinator, "verify", trust)
    assert_caught(run_late_requests, NOT_ALL_OR_NOTHING)


def test_an_index_of_aborted_transactions_that_is_a_segment_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """M10."""
    aborted_between = ReadableLog.aborted_between

    def late(self: ReadableLog, offset: int, *args: Any) -> Any:
        following = [segment.base_offset for segment in self._segments if segment.base_offset > offset]
        return aborted_between(self, following[0] if following else offset, *args)

    monkeypatch.setattr(ReadableLog, "aborted_between", late)
    assert_caught(run_transactions, "was read as committed")


def test_requests_of_older_connections_that_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Apache Kafka does for clients of version 1: a late EndTxn ends the next transaction. It has to arrive in the
    middle of one, which happens in one run of a hundred; tests/chaos/test_late_requests.py makes it happen."""
    monkeypatch.setattr(TransactionMachine, "is_stale", lambda self, transactional_id, connection: False)
    assert_caught(run_late_requests, NOT_ALL_OR_NOTHING, seeds=400)


def test_a_producer_id_that_is_kept_when_its_epochs_have_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin anew, and whoever still has a high one is not fenced."""
    complete, resume = ending.complete, init.resume

    def kept(value: Any, wall_ms: int) -> Any:
        return complete(value, wall_ms)._replace(producer_id=value.producer_id)

    def resumed(transaction: Any, *args: Any) -> Any:
        found = resume(transaction, *args)
        if isinstance(found, Needs) or not found.records or found.response.producer_epoch != 0:
            return found
        (record,) = found.records
        same = {"producer_id": transaction.value.producer_id}
        assert record.value is not None
        fresh = record._replace(value=record.value._replace(**same))
        return Decision((fresh,), found.response._replace(**same))

    monkeypatch.setattr(ending, "complete", kept)
    monkeypatch.setattr(init, "resume", resumed)
    assert_caught(lambda seed: run_plan(seed, Plan(exhausts=True)), "the epoch went back to|was given twice")


def test_a_transactional_commit_of_a_member_that_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-447: a copier that was asleep commits what another one has copied since."""
    monkeypatch.setattr(TxnCommit, "_check", lambda self, group: ErrorCode.NONE)
    assert_caught(lambda seed: run_plan(seed, Plan(shares=True)), r"the copy of 0 to \d+ is")


def test_a_marker_that_is_cleaned_away_before_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """M11: what its producer has committed since is then taken for a part of the transaction that was aborted."""
    meet = CleanedTransactions.meet_marker

    def early(self: CleanedTransactions, header: Any, ending: Any) -> Any:
        return True, meet(self, header, ending)[1]

    monkeypatch.setattr(CleanedTransactions, "meet_marker", early)
    monkeypatch.setattr(keeping.Keeper, "_is_last_of_producer", lambda self, header: False)
    monkeypatch.setattr(keeping, "delete_horizon_ms", lambda header: 0)
    assert_caught(run_compacted, NOT_ALL_OR_NOTHING)
