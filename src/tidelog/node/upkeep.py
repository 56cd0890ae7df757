"""What a node does by the clock: retention, compaction, checkpoints, idle connections, expired producers. Each is one
small loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tidelog.broker.ledger import Ledger
from tidelog.broker.listener import BrokerListener
from tidelog.broker.metrics import Metrics
from tidelog.metadata.live_config import LiveConfig
from tidelog.replication.cleaner import LogCleaner
from tidelog.replication.housekeeping import Housekeeping

_ROOM_CHECK_S = 1.0
_REMOVAL_CHECK_S = 5.0
_IDLE_CHECK_S = 10.0
_LIMITS_CHECK_S = 1.0


async def every(interval_s: Callable[[], float], action: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_s())
        await action()


class Upkeep:
    def __init__(
        self,
        housekeeping: Housekeeping,
        cleaner: LogCleaner,
        open_unserved: Callable[[], None],
        listeners: list[BrokerListener],
        config: LiveConfig,
        metrics: Metrics,
        ledger: Ledger,
        lag_check_s: float,
    ) -> None:
        self._housekeeping = housekeeping
        self._cleaner = cleaner
        self._open_unserved = open_unserved
        self._listeners = listeners
        self._config = config
        self._metrics = metrics
        self._ledger = ledger
        self._lag_check_s = lag_check_s

    def tasks(self) -> list[Awaitable[None]]:
        def ms(name: str) -> Callable[[], float]:
            return lambda: max(self._config.integer(name), 10) / 1000

        return [
            every(ms("log.retention.check.interval.ms"), self._retention),
            every(lambda: _REMOVAL_CHECK_S, self._housekeeping.remove_due_files),
            every(ms("log.flush.offset.checkpoint.interval.ms"), self._checkpoint),
            every(ms("producer.id.expiration.check.interval.ms"), self._housekeeping.expire_producers),
            every(lambda: _IDLE_CHECK_S, self._idle),
            every(lambda: _LIMITS_CHECK_S, self._limits),
            every(lambda: _ROOM_CHECK_S, self._look_for_room),
            self._cleaner.run(),
            self._watch_loop_lag(),
        ]

    async def _retention(self) -> None:
        await self._housekeeping.apply_retention()

    async def _checkpoint(self) -> None:
        """Sync what was written, then say so: a recovery point is never ahead of the disk."""
        await self._housekeeping.flush()
        await self._housekeeping.checkpoint()

    async def _look_for_room(self) -> None:
        self._open_unserved()

    async def _idle(self) -> None:
        for listener in self._listeners:
            listener.close_idle()

    async def _limits(self) -> None:
        """Who keeps others waiting is cut off; limits may have been changed meanwhile."""
        self._ledger.enforce()
        for listener in self._listeners:
            while listener.shrink():
                pass
            listener.admit_waiting()

    async def _watch_loop_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self._lag_check_s
            await asyncio.sleep(self._lag_check_s)
            self._metrics.loop_lag.note(loop.time() - due_s, self._lag_check_s)
