"""The coordinators of one kind on this node: which internal partitions it answers for, loading, unloading and time.

The runtime never waits and starts nothing. Whoever drives it calls `poll` soon after `wake` was called, and when
`deadline_ms` has come; a simulation does the same on virtual time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tidelog.coordinator.chores import Chores
from tidelog.coordinator.decision import StateMachine
from tidelog.coordinator.loading import Loading
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox
from tidelog.coordinator.shard import Limits, Shard
from tidelog.coordinator.shard_log import ShardLog
from tidelog.kernel.errors import DiskError, ProtocolError
from tidelog.kernel.ports import Clock
from tidelog.log.errors import LogError
from tidelog.protocol.errors import ErrorCode

M = TypeVar("M", bound=StateMachine[Any])
_log = logging.getLogger("tidelog.coordinator")


@dataclass(slots=True, eq=False)
class _Place(Generic[M]):
    """A partition that this node leads. Without `loading` its shard answers, unless loading has failed."""

    epoch: int
    shard: Shard[M]
    loading: Loading | None
    failed: bool = False
    markers: list[tuple[int, bool]] = field(default_factory=list)
    """Of transactions that ended while the partition was loaded: perhaps behind what was to be read."""


class CoordinatorRuntime(Generic[M]):
    def __init__(
        self,
        machine: Callable[[int, Outbox], M],
        clock: Clock,
        wake: Callable[[], None],
        limits: Limits | None = None,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._wake = wake
        self._limits = limits or Limits()
        self._outbox = Outbox(wake)
        self.chores = Chores(wake)
        self._places: dict[int, _Place[M]] = {}
        self._unflushed: list[Shard[M]] = []
        self._loading: list[int] = []
        self._load_left = self._limits.load_slice
        """What this turn may still load."""
        self._timer_ms: int | None = None

    # leadership

    def load(self, partition: int, epoch: int, log: ShardLog) -> None:
        """This node has become the leader. Short logs are loaded at once, long ones slice by slice in `poll`,
        and so are many short ones."""
        place = self._places.get(partition)
        if place is not None and place.epoch >= epoch:
            return
        if place is not None:
            self.unload(partition, epoch)
        machine = self._machine(partition, self._outbox)
        shard = Shard(partition, machine, log, self._outbox, self._clock, self._limits)
        shard.when_changed = self._shard_changed
        place = _Place(epoch, shard, Loading(machine, log.read_all(), lambda: Moment.of(self._clock)))
        self._places[partition] = place
        self._advance(partition, place)

    def unload(self, partition: int, epoch: int) -> None:
        place = self._places.get(partition)
        if place is None or place.epoch > epoch:
            return
        del self._places[partition]
        if partition in self._loading:
            self._loading.remove(partition)
        if place.loading is None and not place.failed:
            place.shard.stop(ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        for partition, place in sorted(self._places.items()):
            self.unload(partition, place.epoch)

    # requests

    def find(self, partition: int) -> Shard[M] | ErrorCode:
        place = self._places.get(partition)
        if place is None or place.failed:
            return ErrorCode.NOT_COORDINATOR
        return place.shard if place.loading is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def end_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """A marker was appended to the partition's log."""
        place = self._places.get(partition)
        if place is None or place.failed:
            return
        if place.loading is None:
            place.shard.end_transaction(producer_id, committed)
        else:
            place.markers.append((producer_id, committed))

    def shards(self) -> list[Shard[M]]:
        """Those that answer, in the order of their partitions."""
        return [place.shard for _, place in sorted(self._places.items()) if place.loading is None and not place.failed]

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    # time

    def deadline_ms(self) -> int | None:
        """When to call poll, on the clock's monotonic side; a time that has passed means now."""
        is_behind = self._outbox.is_behind or self.chores.is_behind
        return 0 if self._unflushed or self._loading or is_behind else self._timer_ms

    def poll(self) -> None:
        self.chores.next_turn()
        unflushed, self._unflushed = self._unflushed, []
        for shard in unflushed:
            shard.flush()
            self._shard_changed(shard)
        self._outbox.next_turn()
        self._load_left = self._limits.load_slice
        while self._loading and self._load_left > 0:
            self._advance(self._loading[0], self._places[self._loading[0]])
        self._tick()
        if self.chores.go_on():
            # What they have found may be due: it has a turn of its own.
            self._timer_ms = 0

    def _tick(self) -> None:
        now_ms = Moment.of(self._clock).ms
        if self._timer_ms is None or self._timer_ms > now_ms:
            return
        for shard in self.shards():
            deadline_ms = shard.deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                shard.tick()
        deadlines = [deadline_ms for shard in self.shards() if (deadline_ms := shard.deadline_ms()) is not None]
        self._timer_ms = min(deadlines, default=None)

    def _shard_changed(self, shard: Shard[M]) -> None:
        if shard.has_shared and shard not in self._unflushed:
            self._unflushed.append(shard)
            self._wake()
        deadline_ms = shard.deadline_ms()
        if deadline_ms is not None and (self._timer_ms is None or deadline_ms < self._timer_ms):
            self._timer_ms = deadline_ms
            self._wake()

    def _advance(self, partition: int, place: _Place[M]) -> None:
        assert place.loading is not None
        try:
            self._load_left = place.loading.advance(self._load_left)
            done = place.loading.is_done
        except (ProtocolError, DiskError, LogError) as error:
            # Answering without the records that could not be read would hand out groups and offsets that are wrong.
            _log.error("the coordinator of partition %d cannot load: %s", partition, error)
            place.failed, done = True, True
        if not done:
            if partition not in self._loading:
                self._loading.append(partition)
            self._wake()
            return
        loading, place.loading = place.loading, None
        if partition in self._loading:
            self._loading.remove(partition)
        if not place.failed:
            _log.info("loaded partition %d: %d records", partition, loading.record_count)
            if loading.skipped_count:
                _log.warning(
                    "partition %d: %d records that a newer release wrote were skipped", partition, loading.skipped_count
                )
            place.shard.start(loading.end_offset)
            for producer_id, committed in place.markers:
                place.shard.end_transaction(producer_id, committed)
