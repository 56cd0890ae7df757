"""A batch for records that come due while the topics are silent.

Spark runs a batch only when its source has something new. So a record that nobody judges goes into the retry topic:
with the block of a letter that is of no flow, which every flow leaves out. A wake too many costs an empty batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producing import produce
from tidelog.kernel.errors import TidelogError
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.spark.link import Link
from tidelog.spark.pipeline.letters.decisions import Decided
from tidelog.spark.pipeline.letters.headers import WAKE, block

_LOG: Final = logging.getLogger(__name__)


class Waker:
    def __init__(self, kafka: Mapping[str, str], topic: str) -> None:
        self._kafka = kafka
        self._at = TopicPartition(topic, 0)
        self._woken: Decided | None = None
        self._sender: threading.Thread | None = None

    def is_due(self, last: Decided, now_ms: int) -> bool:
        """One wake for what was left after a batch: the batch that it makes leaves something else."""
        return last.due_ms is not None and last.due_ms <= now_ms and last is not self._woken

    def wake(self, last: Decided) -> None:
        with Link(self._kafka) as link:
            link.ask(self._send)
        self._woken = last

    def wake_beside(self, last: Decided) -> None:
        """In a thread of its own: who looks after many flows must not wait for a broker."""
        if self._sender is None or not self._sender.is_alive():
            self._sender = threading.Thread(target=self._try, args=(last,), name="tidelog-wake", daemon=True)
            self._sender.start()

    def _try(self, last: Decided) -> None:
        try:
            self.wake(last)
        except TidelogError as error:
            _LOG.warning("records of %s are due, and no record to wake their flow was taken: %s", self._at.topic, error)

    async def _send(self, cluster: Cluster) -> None:
        now_ms = cluster.clock.wall_ms()
        # With a key, which compacted topics want.
        record = RecordInput(WAKE.encode(), None, now_ms, block([(WAKE, now_ms)]))
        await produce(cluster, self._at, build_batch([record]))
