"""The composition root: one process is one node. Wires the layers by their constructors and sees them through the
states starting, serving, draining, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Coroutine, Generator
from enum import Enum
from typing import Any

from tidelog.broker.buffers import Buffers
from tidelog.broker.cold_reads import ColdReads
from tidelog.broker.connection_limits import ConnectionLimits
from tidelog.broker.deadlines import Deadlines
from tidelog.broker.dispatch import Dispatch
from tidelog.broker.fetch_sessions import FetchSessions
from tidelog.broker.listener import BrokerListener
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.broker.metrics import Metrics
from tidelog.broker.peer_log import PeerLog
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.registry import registered_apis
from tidelog.broker.services import Services
from tidelog.controller import brokers, directories
from tidelog.controller.controller import Controller
from tidelog.controller.decision import encode_record
from tidelog.kernel.errors import DiskError
from tidelog.log.config import LogConfig
from tidelog.metadata.image import Endpoint, MetadataDelta, MetadataImage
from tidelog.metadata.live_config import LiveConfig
from tidelog.metadata.publisher import MetadataPublisher
from tidelog.node.carried import check_carried, check_version
from tidelog.node.config import NodeConfig
from tidelog.node.directories import Directories
from tidelog.node.following import Following
from tidelog.node.groups import Groups, GroupView
from tidelog.node.limits import make_ledger, socket_options
from tidelog.node.listeners import WILDCARDS, address
from tidelog.node.ports import Ports
from tidelog.node.transactions import Transactions
from tidelog.node.upkeep import Upkeep
from tidelog.protocol.uuids import random_uuid
from tidelog.raft.quorum import Quorum
from tidelog.replication.cleaner import LogCleaner
from tidelog.replication.home import Home
from tidelog.replication.housekeeping import Housekeeping
from tidelog.replication.partitions import Partitions

_log = logging.getLogger("tidelog.node")


class State(Enum):
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


class Node:
    """`await start()`, then `await stop()`; `wait()` returns when it has stopped, or raises what made it stop."""

    def __init__(self, config: NodeConfig, ports: Ports) -> None:
        self.config = config
        self.ports = ports
        self.state = State.STARTING
        self.metrics = Metrics(ports.clock.monotonic_s)
        self.ledger = make_ledger(config, ports)
        self.listeners: list[BrokerListener] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: asyncio.Future[None] | None = None
        self._directories: Directories | None = None
        self._homes: list[Home] = []

    @property
    def addresses(self) -> list[str]:
        return [address(listener.host or "127.0.0.1", listener.port) for listener in self.listeners]

    @property
    def is_ready(self) -> bool:
        return self.state is State.SERVING and not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Something ended it from within: what it holds in memory is not to be trusted."""
        ended = self._ended
        return ended is not None and ended.done() and not ended.cancelled() and ended.exception() is not None

    def group_views(self) -> list[GroupView]:
        return self._groups.views()

    @property
    def transactions(self) -> Transactions:
        return self._transactions

    # starting

    async def start(self) -> None:
        self._ended = asyncio.get_running_loop().create_future()
        try:
            self._open_directories()
            self._load_metadata()
            self._wire()
            self._load_partitions()
            await self._open_listeners()
            await self._unless_failed(self._register())
            for listener in self.listeners:
                listener.start_serving()
            for awaitable in self._upkeep.tasks():
                self._spawn(awaitable)
        except BaseException:
            await self._abandon()
            raise
        self.state = State.SERVING

    def _open_directories(self) -> None:
        config, ports = self.config, self.ports
        metadata_dir = config.get("metadata.log.dir")
        assert metadata_dir is None or isinstance(metadata_dir, str)
        self._directories = Directories(ports.disk, ports.random, config.log_dirs, metadata_dir)
        self._directories.open()
        self._cluster_id = self._directories.identify(config.node_id, config.cluster_id)
        self._metadata_directory = self._directories.metadata
        self._offline_at_start = tuple(self._directories.failed)
        self._homes = [Home(ports.disk, ports.clock, directory) for directory in self._directories.data]

    def _load_metadata(self) -> None:
        config, ports = self.config, self.ports
        self.publisher = MetadataPublisher()
        self._quorum = Quorum(
            ports.disk,
            ports.clock,
            self._metadata_directory.path,
            config.node_id,
            config=LogConfig(
                segment_bytes=config.get_int("metadata.log.segment.bytes"),
                retention_ms=-1,
                max_message_bytes=1 << 26,
            ),
            snapshot_bytes=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
        )
        for committed in self._quorum.start():
            self.publisher.replay(committed.values, committed.base_offset, committed.epoch)
        check_version(self.publisher.image)
        check_carried(self.publisher.image, config)
        self.live_config = LiveConfig(config.values, config.node_id)
        self.live_config.on_delta(self._everything())

    def _everything(self) -> MetadataDelta:
        """What was loaded, as a change from nothing."""
        image = self.publisher.image
        return MetadataDelta(
            before=MetadataImage(),
            after=image,
            created=tuple(topic for _, topic in sorted(image.topics.items())),
            configs=frozenset(image.configs),
        )

    def _wire(self) -> None:
        config, ports = self.config, self.ports
        node_id = config.node_id
        self.controller = Controller(self._quorum, self.publisher)
        self.partitions = Partitions(
            self._homes,
            ports.clock,
            ports.random,
            node_id,
            is_synced=config.get_str("tidelog.sync.mode") == "synced",
        )
        self.partitions.when_offline = self._on_offline
        self.housekeeping = Housekeeping(self.partitions, ports.disk, ports.clock)
        self.cleaner = LogCleaner(
            self.partitions,
            self.housekeeping,
            ports.disk,
            ports.clock,
            ports.random,
            ports.jobs,
            self.live_config,
        )
        self.deadlines = Deadlines()
        self._groups = Groups(
            self.partitions, self.publisher, self.live_config, ports.clock, ports.random, self.deadlines
        )
        producer_ids = ProducerIds(self.controller, node_id)
        self._transactions = Transactions(
            self.partitions, self.publisher, self.live_config, ports.clock, self.deadlines, producer_ids
        )
        apis = registered_apis()
        self.services = Services(
            node_id=node_id,
            cluster_id=self._cluster_id,
            clock=ports.clock,
            random=ports.random,
            config=self.live_config,
            metadata=self.publisher,
            controller=self.controller,
            partitions=self.partitions,
            offline_directories=self._offline_at_start,
            producer_ids=producer_ids,
            groups=self._groups.coordinator,
            transaction_coordinator=self._transactions.coordinator,
            transactions=self._transactions.coordinator,
            fetch_sessions=FetchSessions(
                ports.random,
                config.get_int("max.incremental.fetch.session.cache.slots"),
                remembered=self.ledger.session_partitions,
            ),
            metadata_cache=MetadataCache(),
            deadlines=self.deadlines,
            cold_reads=ColdReads(ports.disk),
            metrics=self.metrics,
            ledger=self.ledger,
            fatal=self._fatal,
            apis=apis,
        )
        self._dispatch = Dispatch(self.services, apis)
        self._upkeep = Upkeep(
            self.housekeeping,
            self.cleaner,
            self._open_unserved,
            self.listeners,
            self.live_config,
            self.metrics,
            self.ledger,
            ports.lag_check_s,
        )

    def _load_partitions(self) -> None:
        """A directory that fails here is one that the broker does not register with."""
        self.partitions.load(self.publisher.image, self.live_config.values)
        self.raise_failure()
        self._following = Following(self._follow, self._fatal)
        self.publisher.subscribe(self.live_config.on_delta)
        self.publisher.subscribe(self._following.on_delta)

    def _follow(self, delta: MetadataDelta) -> Generator[None, None, None]:
        yield from self.partitions.following(delta, self.live_config.values)
        self._groups.on_delta(delta)
        self._transactions.on_delta(delta)
        for topic in delta.deleted:
            self.metrics.forget(topic.name)

    # directories

    def _on_offline(self, home: Home, error: DiskError) -> None:
        if home.directory is self._metadata_directory or not self.partitions.online():
            self._fatal(error)
            return
        if self.config.node_id not in self.publisher.image.brokers or self.state is State.STARTING:
            return  # the broker registers with those that it has
        node_id, directory_id = self.config.node_id, home.directory_id
        _log_failure(self.controller.submit(lambda image: directories.take_offline(image, node_id, directory_id)))

    def _report_moved(self) -> Awaitable[None]:
        """Tell the controller where logs were found, or made, if not where the metadata says."""
        moved, node_id = self.partitions.take_moved(), self.config.node_id
        return self.controller.submit(lambda image: directories.assign(image, node_id, moved))

    def _open_unserved(self) -> None:
        if self.partitions.unserved_count and self.partitions.open_unserved(
            self.publisher.image, self.live_config.values
        ):
            self._groups.load()
            self._transactions.load()

    async def _open_listeners(self) -> None:
        config = self.config
        advertised = {entry.name: (entry.host, entry.port) for entry in config.advertised_listeners or ()}
        buffers = Buffers()
        monotonic_s = self.ports.clock.monotonic_s
        limits = ConnectionLimits(self.live_config, monotonic_s, self.ledger.connections, config.own_listener)
        peer_log = PeerLog(logging.getLogger("tidelog.connection"), monotonic_s)
        for entry in config.listeners:
            if entry.name in config.get_list("controller.listener.names"):
                continue
            listener = BrokerListener(
                name=entry.name,
                host=entry.host,
                port=entry.port,
                advertised=advertised.get(entry.name),
                frame_bytes_max=config.get_int("socket.request.max.bytes"),
                idle_s_max=config.get_int("connections.max.idle.ms") / 1000,
                clock=self.ports.clock,
                buffers=buffers,
                metrics=self.metrics,
                ledger=self.ledger,
                limits=limits,
                peer_log=peer_log,
                handle_frame=self._dispatch.handle_frame,
                options=socket_options(config),
            )
            await listener.bind(self.ports.net)
            self.listeners.append(listener)

    async def _register(self) -> None:
        node_id = self.config.node_id
        self._spawn(self.controller.run())
        await self.controller.submit(brokers.bootstrap)
        await self.controller.submit(
            lambda image: brokers.register(
                self._quorum.end_offset,
                node_id,
                random_uuid(self.ports.random),
                [_endpoint(listener) for listener in self.listeners],
                [home.directory_id for home in self.partitions.online()],
                None if self.config.get("broker.rack") is None else self.config.get_str("broker.rack"),
            )
        )
        await self._report_moved()
        await self.controller.submit(lambda image: brokers.unfence(image, node_id))
        self._groups.start()
        self._transactions.start()

    async def _unless_failed(self, step: Coroutine[Any, Any, None]) -> None:
        """Given up when something ends the node meanwhile: whoever the step waits for may be no more."""
        assert self._ended is not None
        task = asyncio.ensure_future(step)
        try:
            await asyncio.wait([task, self._ended], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._ended.result()
        finally:
            task.cancel()
        await task

    def _spawn(self, awaitable: Awaitable[None]) -> None:
        task = asyncio.ensure_future(awaitable)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal(error)

    def _fatal(self, error: BaseException) -> None:
        """Go on with a state that nobody understands? No: stop, and let recovery make it right."""
        if self._ended is not None and not self._ended.done():
            _log.critical("the node stops: %s: %s", type(error).__name__, error, exc_info=error)
            self._ended.set_exception(error)
            # Clients go elsewhere, or fail at once, rather than wait for somebody who answers no more.
            for listener in self.listeners:
                listener.close()

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception handler for a loop that is the node's own: asyncio would only log a callback that failed."""
        error = context.get("exception")
        if isinstance(error, OSError):
            _log.warning("%s: %s", context.get("message"), error)
        else:
            self._fatal(error if error is not None else RuntimeError(context.get("message")))

    async def wait(self) -> None:
        assert self._ended is not None
        await asyncio.shield(self._ended)

    def raise_failure(self) -> None:
        """What ended the node from within, if anything did."""
        if self.has_failed:
            assert self._ended is not None
            self._ended.result()

    # stopping

    async def stop(self) -> None:
        """A clean stop: everything synced, then the marker that spares the next start its scan."""
        if self.state in (State.STOPPED, State.DRAINING):
            return
        self.state = State.DRAINING
        try:
            await self._quiesce()
            if self._ended is not None and not self.has_failed:
                self._close()
        finally:
            self._let_go()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _close(self) -> None:
        image, node_id = self.publisher.image, self.config.node_id
        # Straight to the log: nobody is left whom the change could concern. Not behind a batch that the stop overtook,
        # which the image does not know: it may have removed a topic that the farewell speaks of.
        is_current = self._quorum.end_offset == image.offset + 1
        farewell = brokers.sign_off(image, node_id).records if is_current else []
        self._quorum.close([encode_record(record) for record in farewell])
        epoch = image.brokers[node_id].epoch
        for home in self.partitions.online():
            try:
                home.directory.close(
                    self.ports.clock.wall_ms(),
                    high_watermarks=self.partitions.high_watermarks(home),
                    broker_epoch=epoch,
                )
            except DiskError as error:
                # Without the mark of a clean stop the next start checks it.
                _log.error("%s was not closed: %s", home.directory.path, error)

    async def _quiesce(self) -> None:
        for listener in self.listeners:
            listener.close()
        if hasattr(self, "_following"):
            self._following.end()
        if hasattr(self, "_groups"):
            self._groups.stop()
        if hasattr(self, "_transactions"):
            self._transactions.stop()
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for home in self._homes:
            await home.rounds.end()
        if hasattr(self, "deadlines"):
            self.deadlines.close()

    async def _abandon(self) -> None:
        """A start that failed leaves nothing behind, and no mark of a clean stop."""
        try:
            await self._quiesce()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Of files and locks, also of those that a clean stop has closed already."""
        if hasattr(self, "_quorum"):
            self._quorum.abandon()
        if self._directories is not None:
            self._directories.abandon()
        self.state = State.STOPPED


def _endpoint(listener: BrokerListener) -> Endpoint:
    """As registered: one that listens everywhere is at least reached from its own machine."""
    host = "localhost" if listener.host in WILDCARDS else listener.host
    return Endpoint(listener.name, *(listener.advertised or (host, listener.port)))


def _log_failure(future: asyncio.Future[None]) -> None:
    """Of a change that nobody waits for: the next start makes up for it."""

    def ended(future: asyncio.Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.error("the metadata did not take it: %s", error)

    future.add_done_callback(ended)
