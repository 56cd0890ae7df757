"""Which configs the running code acts on. A config that is set but not listed here is a warning at start."""

from __future__ import annotations

_NAMES = """
    node.id broker.id process.roles listeners advertised.listeners listener.security.protocol.map
    controller.listener.names broker.rack log.dir log.dirs metadata.log.dir metadata.log.segment.bytes
    metadata.log.max.record.bytes.between.snapshots num.partitions default.replication.factor
    auto.create.topics.enable delete.topic.enable min.insync.replicas message.max.bytes log.segment.bytes log.roll.ms
    log.roll.hours log.roll.jitter.ms log.roll.jitter.hours log.index.interval.bytes log.index.size.max.bytes
    log.segment.delete.delay.ms log.retention.ms log.retention.minutes log.retention.hours log.retention.bytes
    log.retention.check.interval.ms log.cleanup.policy log.flush.offset.checkpoint.interval.ms
    log.message.timestamp.type log.message.timestamp.before.max.ms log.message.timestamp.after.max.ms compression.type
    compression.gzip.level compression.lz4.level compression.zstd.level producer.id.expiration.ms
    producer.id.expiration.check.interval.ms group.initial.rebalance.delay.ms group.min.session.timeout.ms
    group.max.session.timeout.ms group.consumer.session.timeout.ms group.consumer.heartbeat.interval.ms
    group.consumer.assignment.interval.ms group.consumer.max.size group.max.size
    group.consumer.assignors group.consumer.migration.policy
    group.consumer.min.session.timeout.ms group.consumer.max.session.timeout.ms
    group.consumer.min.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms
    group.consumer.min.assignment.interval.ms group.consumer.max.assignment.interval.ms
    consumer.session.timeout.ms consumer.heartbeat.interval.ms consumer.assignment.interval.ms
    offsets.topic.num.partitions offsets.topic.replication.factor
    offsets.topic.segment.bytes offsets.retention.minutes offsets.retention.check.interval.ms
    offsets.commit.timeout.ms offset.metadata.max.bytes socket.request.max.bytes connections.max.idle.ms
    queued.max.request.bytes tidelog.queued.max.response.bytes max.connections max.connections.per.ip
    max.connections.per.ip.overrides max.connection.creation.rate socket.send.buffer.bytes socket.receive.buffer.bytes
    socket.listen.backlog.size inter.broker.listener.name
    fetch.max.bytes max.incremental.fetch.session.cache.slots max.request.partition.size.limit tidelog.http.listener
    tidelog.acls.unenforced.allow tidelog.sync.mode transaction.max.timeout.ms transactional.id.expiration.ms
    transaction.abort.timed.out.transaction.cleanup.interval.ms
    transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.num.partitions
    transaction.state.log.replication.factor transaction.state.log.min.isr transaction.state.log.segment.bytes
    log.cleaner.enable log.cleaner.threads log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.delete.retention.ms
    log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.max.compaction.lag.ms

    cleanup.policy retention.ms retention.bytes segment.bytes segment.ms segment.jitter.ms segment.index.bytes
    index.interval.bytes file.delete.delay.ms max.message.bytes message.timestamp.type message.timestamp.before.max.ms
    message.timestamp.after.max.ms internal.segment.bytes delete.retention.ms min.cleanable.dirty.ratio
    min.compaction.lag.ms max.compaction.lag.ms
"""

HONOURED: frozenset[str] = frozenset(_NAMES.split())
"""Broker, topic and group names alike; a name that two scopes share is honoured in both."""

PER_LISTENER: frozenset[str] = frozenset(("max.connections", "max.connection.creation.rate"))
"""Those that listener.name.<listener>.<config> may set for one listener."""

NOT_YET: dict[str, dict[str, str]] = {}
"""Values that a config we honour takes, but that have no effect yet, and what happens instead."""
