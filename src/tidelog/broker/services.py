"""What handlers may use, handed in by the node. A bag of references with no state of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from tidelog.broker.cold_reads import ColdReads
from tidelog.broker.deadlines import Deadlines
from tidelog.broker.ledger import Ledger
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.broker.metrics import Metrics
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.transactional_produce import TransactionalProduces
from tidelog.controller.controller import Controller
from tidelog.kernel.ports import Clock
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.live_config import LiveConfig
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.replication.partitions import Partitions

if TYPE_CHECKING:
    from tidelog.broker.api import Api
    from tidelog.broker.context import RequestContext
    from tidelog.broker.fetch_sessions import FetchSessions
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.txn.coordinator import TransactionCoordinator
    from tidelog.coordinator.txn.ports import TransactionVerifier

_log = logging.getLogger("tidelog.broker")


@dataclass(slots=True, kw_only=True)
class Services:
    node_id: int
    cluster_id: str
    clock: Clock
    random: Random
    config: LiveConfig
    metadata: MetadataPublisher
    controller: Controller
    partitions: Partitions
    offline_directories: tuple[str, ...]
    """Log directories that could not be used when the node started."""
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    fetch_sessions: FetchSessions
    metadata_cache: MetadataCache
    deadlines: Deadlines
    cold_reads: ColdReads
    metrics: Metrics
    ledger: Ledger
    fatal: Callable[[BaseException], None]
    """Our own bug was found: the node stops rather than go on with a state that nobody understands."""
    apis: list[Api]
    transactions: TransactionVerifier | None = None
    """Asked before transactional data is appended. None where transactions are not served."""
    transactional_produces: TransactionalProduces = field(default_factory=TransactionalProduces)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def failed(self, error: BaseException, context: RequestContext) -> None:
        """A handler broke. The client's connection is closed; a broken invariant ends the node."""
        _log.error("%s v%d from %s failed", context.api.name, context.version, context.client_host, exc_info=error)
        context.connection.abort()
        if isinstance(error, AssertionError):
            self.fatal(error)
