"""The numbers of a node in Prometheus' text format, under the names that Kafka dashboards know: those of
kafka_exporter, and those that the JMX exporter makes of Kafka's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.metrics import LoopLag
from tidelog.coordinator.txn.state import TransactionState
from tidelog.metadata.image import PartitionState
from tidelog.node.listeners import address
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.node.node import Node


_LINES_PER_SLICE: Final = 2000


class Sample(NamedTuple):
    value: float
    labels: tuple[tuple[str, str], ...] | str = ()
    """Names and values, or these as they are written."""
    suffix: str = ""


class Family(NamedTuple):
    name: str
    kind: str
    text: str
    samples: Iterable[Sample]
    """Worked out while the page is written."""


def render(node: Node) -> str:
    return "".join(slices(node))


def slices(node: Node) -> Iterator[str]:
    """The page in parts. Others may have a turn between two: ten thousand partitions have a page of eight megabytes."""
    lines: list[str] = []
    for family in _families(node):
        for line in _lines(family):
            lines.append(line)
            if len(lines) == _LINES_PER_SLICE:
                yield "".join(lines)
                lines.clear()
    yield "".join(lines)


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n"
    for value, labels, suffix in family.samples:
        text = labels if isinstance(labels, str) else _written(labels)
        yield f"{family.name}{suffix}{'{' + text + '}' if text else ''} {value!r}\n"


def _written(labels: tuple[tuple[str, str], ...]) -> str:
    return ",".join([f'{name}="{_escape(content)}"' for name, content in labels])


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _families(node: Node) -> Iterable[Family]:
    yield from _cluster(node)
    yield from _directories(node)
    yield from _partitions(node)
    yield from _cleaner(node)
    yield from _topics(node)
    yield from _requests(node)
    yield from _limits(node)
    yield from _groups(node)
    yield from _transactions(node)


def _cluster(node: Node) -> Iterator[Family]:
    brokers = node.publisher.image.live_brokers()
    partitions = len(node.partitions)
    yield Family("kafka_brokers", "gauge", "Brokers that are alive.", [Sample(len(brokers))])
    addresses = [
        Sample(1, (("id", str(b.broker_id)), ("address", address(e.host, e.port))))
        for b in brokers
        for e in b.endpoints[:1]
    ]
    yield Family("kafka_broker_info", "gauge", "Address of each broker.", addresses)
    who = (("cluster_id", node.services.cluster_id), ("node_id", str(node.config.node_id)))
    yield Family("tidelog_node_info", "gauge", "Whose metrics these are.", [Sample(1, who)])
    for name, text, value in (
        ("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.", partitions),
        ("kafka_server_replicamanager_partitioncount", "Partitions of this broker.", partitions),
        ("kafka_server_replicamanager_underreplicatedpartitions", "Partitions with a replica out of sync.", 0),
        ("kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller.", 1),
        (
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "Partitions without a leader.",
            node.partitions.unserved_count,
        ),
        ("kafka_server_socket_server_metrics_connection_count", "Open connections.", node.metrics.connections_open),
    ):
        yield Family(name, "gauge", text, [Sample(value)])
    accepted = [Sample(node.metrics.connections_accepted)]
    yield Family(
        "kafka_server_socket_server_metrics_connection_creation_total", "counter", "Connections made.", accepted
    )
    yield from _loop(node.metrics.loop_lag)
    cold = node.services.cold_reads
    yield Family("tidelog_cold_reads_total", "counter", "Reads that waited for the disk.", [Sample(cold.reads)])
    yield Family("tidelog_cold_read_bytes_total", "counter", "Bytes that they brought.", [Sample(cold.read_bytes)])
    yield Family("tidelog_cold_requests", "gauge", "Requests that wait for such a read.", [Sample(cold.requests)])
    damaged = [Sample(sum(partition.log.damaged_batches for partition in node.partitions))]
    yield Family("tidelog_log_damaged_batches_total", "counter", "Places in logs that were found damaged.", damaged)


def _loop(lag: LoopLag) -> Iterator[Family]:
    yield Family("tidelog_loop_lag_seconds", "gauge", "Recent longest stop of the event loop.", [Sample(lag.recent_s)])
    worst = [Sample(lag.worst_s)]
    yield Family("tidelog_loop_lag_seconds_max", "gauge", "Longest stop of the event loop since the start.", worst)
    names = [*map(str, lag.BOUNDS_S), "+Inf"]
    up_to = accumulate(lag.counts)
    stops = [Sample(count, (("le", name),), "_bucket") for name, count in zip(names, up_to, strict=True)]
    stops += [Sample(lag.total_s, (), "_sum"), Sample(sum(lag.counts), (), "_count")]
    yield Family("tidelog_loop_stop_seconds", "histogram", "What a timer of the loop had to wait.", stops)


def _directories(node: Node) -> Iterator[Family]:
    online = {home.directory.path: home.is_online for home in node.partitions.homes}
    online |= dict.fromkeys(node.services.offline_directories, False)
    lost = [Sample(int(not up), (("logDirectory", path),)) for path, up in online.items()]
    yield Family("kafka_log_logmanager_logdirectoryoffline", "gauge", "1 for a log directory that failed.", lost)
    count = [Sample(sum(not up for up in online.values()))]
    yield Family("kafka_log_logmanager_offlinelogdirectorycount", "gauge", "Log directories that failed.", count)
    rounds = [Sample(home.rounds.rounds, (("logDirectory", home.directory.path),)) for home in node.partitions.homes]
    yield Family("tidelog_sync_rounds_total", "counter", "Syncs that appends waited for.", rounds)


def _partitions(node: Node) -> Iterator[Family]:
    image = node.publisher.image
    counts = (Sample(len(topic.partitions), (("topic", name),)) for name, topic in sorted(image.topics.items()))
    yield Family("kafka_topic_partitions", "gauge", "Partitions of the topic.", counts)
    found = list(node.partitions)
    labels: list[str] = []

    def samples(value: Callable[[Partition], float]) -> Iterator[Sample]:
        for number, partition in enumerate(found):
            if number == len(labels):
                labels.append(_written((("topic", partition.topic), ("partition", str(partition.index)))))
            yield Sample(value(partition), labels[number])

    for name, text, value in (
        ("kafka_topic_partition_current_offset", "High watermark.", lambda p: p.high_watermark),
        ("kafka_topic_partition_oldest_offset", "Log start offset.", lambda p: p.log_start_offset),
        ("kafka_log_log_size", "Bytes of the partition's log.", lambda p: p.log.size_bytes),
        ("kafka_log_log_logendoffset", "Log end offset.", lambda p: p.log.log_end_offset),
        ("kafka_log_log_logstartoffset", "Log start offset.", lambda p: p.log_start_offset),
    ):
        yield Family(name, "gauge", text, samples(value))

    def state_samples(value: Callable[[PartitionState], int]) -> Iterator[Sample]:
        for partition, at in zip(found, labels, strict=True):
            state = image.partition(partition.topic, partition.index)
            if state is not None:
                yield Sample(value(state), at)

    for name, text, of_state in (
        ("kafka_topic_partition_leader", "Broker that leads.", lambda s: s.leader),
        ("kafka_topic_partition_replicas", "Replicas.", lambda s: len(s.replicas)),
        ("kafka_topic_partition_in_sync_replica", "Replicas in sync.", lambda s: len(s.isr)),
        (
            "kafka_topic_partition_leader_is_preferred",
            "1 when the preferred replica leads.",
            lambda s: int(s.leader == s.replicas[0]),
        ),
        (
            "kafka_topic_partition_under_replicated_partition",
            "1 when a replica is out of sync.",
            lambda s: int(len(s.isr) < len(s.replicas)),
        ),
    ):
        yield Family(name, "gauge", text, state_samples(of_state))


def _cleaner(node: Node) -> Iterator[Family]:
    cleaner = node.cleaner
    ranges = cleaner.ranges
    lost: dict[str, list[int]] = {home.directory.path: [] for home in node.partitions.homes}
    for partition in ranges:
        if partition.log in cleaner.uncleanable:
            lost[partition.home.directory.path].append(partition.log.size_bytes)
    counts = [Sample(len(sizes), (("logDirectory", path),)) for path, sizes in lost.items()]
    sizes = [Sample(sum(sizes), (("logDirectory", path),)) for path, sizes in lost.items()]
    prefix = "kafka_log_logcleanermanager"
    yield Family(f"{prefix}_uncleanable_partitions_count", "gauge", "Partitions that cannot be compacted.", counts)
    yield Family(f"{prefix}_uncleanable_bytes", "gauge", "Bytes of their logs.", sizes)
    worst = max((found.dirty_ratio for found in ranges.values()), default=0.0)
    since_ms = int((node.ports.clock.monotonic_s() - cleaner.looked_s) * 1000)
    longest = max((stats.duration_s for stats in cleaner.cleaned.values()), default=0.0)
    for name, text, value in (
        (f"{prefix}_max_dirty_percent", "Dirty part of the dirtiest compacted log.", int(worst * 100)),
        (f"{prefix}_time_since_last_run_ms", "Since the cleaner last looked for something to do.", since_ms),
        ("kafka_log_logcleaner_max_clean_time_secs", "Longest of the last cleanings of each partition.", longest),
    ):
        yield Family(name, "gauge", text, [Sample(value)])
    yield Family("tidelog_cleanings_total", "counter", "Cleanings of a log.", [Sample(cleaner.cleanings)])
    failures = [Sample(cleaner.failures)]
    yield Family("tidelog_cleanings_failed_total", "counter", "Cleanings that a bug of Tidelog's ended.", failures)
    named = [(p, _written((("topic", p.topic), ("partition", str(p.index))))) for p in ranges]
    dirty = (Sample(ranges[p].dirty_ratio, at) for p, at in named)
    yield Family("tidelog_log_dirty_ratio", "gauge", "Dirty part of a compacted log.", dirty)
    ended = (Sample(cleaner.cleaned[p.log].ended_ms / 1000, at) for p, at in named if p.log in cleaner.cleaned)
    yield Family("tidelog_log_last_clean_timestamp_seconds", "gauge", "When it was last cleaned.", ended)
    marked = (Sample(1, at) for p, at in named if p.log in cleaner.uncleanable)
    yield Family("tidelog_log_uncleanable", "gauge", "1 for a log that cannot be compacted.", marked)


def _topics(node: Node) -> Iterator[Family]:
    topics = [(counters, _written((("topic", topic),))) for topic, counters in sorted(node.metrics.topics.items())]
    for name, text, attribute in (
        ("messagesin", "Records received.", "messages_in"),
        ("bytesin", "Bytes received.", "bytes_in"),
        ("bytesout", "Bytes sent to consumers.", "bytes_out"),
        ("totalproducerequests", "Produce requests, counted per partition.", "produces"),
        ("totalfetchrequests", "Fetch requests, counted per partition.", "fetches"),
        ("failedproducerequests", "Produce requests that failed.", "failed_produces"),
        ("failedfetchrequests", "Fetch requests that failed.", "failed_fetches"),
    ):
        # Used up before the next one is asked for, so the attribute is this one's.
        samples = (Sample(getattr(counters, attribute), at) for counters, at in topics)
        yield Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", text, samples)


def _requests(node: Node) -> Iterator[Family]:
    used = [(api, (("request", api.name),)) for api in node.services.apis if api.count]
    counts = [Sample(api.count, labels) for api, labels in used]
    yield Family("kafka_network_requestmetrics_requests_total", "counter", "Requests answered.", counts)
    times = [Sample(api.seconds * 1000, labels) for api, labels in used]
    yield Family(
        "kafka_network_requestmetrics_totaltimems_sum", "counter", "Time from request to answer, in ms.", times
    )
    yield Family("kafka_network_requestmetrics_totaltimems_count", "counter", "Requests in that sum.", counts)


def _limits(node: Node) -> Iterator[Family]:
    resources = [(resource, (("resource", resource.name),)) for resource in node.ledger.resources()]
    for name, kind, text, samples in (
        ("used", "gauge", "What clients make the node hold.", [Sample(r.used, at) for r, at in resources]),
        ("limit", "gauge", "The most that it may be.", [Sample(r.limit, at) for r, at in resources]),
        (
            "refused_total",
            "counter",
            "Clients turned away or cut off at the limit.",
            [Sample(r.refused, at) for r, at in resources],
        ),
    ):
        yield Family(f"tidelog_ledger_{name}", kind, text, samples)
    for name, text, value in (
        ("refused", "Connections turned away or closed by a limit.", node.metrics.connections_refused),
        ("throttled", "Times that connections waited for the rate limit.", node.metrics.connections_throttled),
    ):
        yield Family(f"tidelog_connections_{name}_total", "counter", text, [Sample(value)])


def _transactions(node: Node) -> Iterator[Family]:
    states = node.transactions.states()
    ids = [Sample(states[state], (("state", state.label),)) for state in TransactionState if state in states]
    yield Family("tidelog_transactional_ids", "gauge", "Transactional ids by the state of their transaction.", ids)
    counters = node.transactions.coordinator.counters
    ended = [Sample(counters.committed, (("result", "commit"),)), Sample(counters.aborted, (("result", "abort"),))]
    yield Family("tidelog_transactions_ended_total", "counter", "Transactions that clients have ended.", ended)
    for name, text, value in (
        ("timed_out", "Transactions that have run out of time.", counters.timed_out),
        ("fenced", "Transactions that ended because another producer took their transactional id.", counters.fenced),
        ("marker_retries", "Markers that had to be sent again.", counters.marker_retries),
        ("stale_requests", "Requests of a connection that a younger one has replaced.", counters.stale_requests),
        ("verifications", "Writes that were verified with the coordinator.", counters.verified),
        ("ids_expired", "Transactional ids that were forgotten, unused.", counters.expired),
    ):
        yield Family(f"tidelog_transactions_{name}_total", "counter", text, [Sample(value)])


def _groups(node: Node) -> Iterator[Family]:
    members, offsets, lags = [], [], []
    offset_sums: dict[tuple[str, str], int] = {}
    lag_sums: dict[tuple[str, str], int] = {}
    for group in node.group_views():
        members.append(Sample(group.members, (("consumergroup", group.group_id),)))
        for topic, index, offset in group.offsets:
            labels = (("consumergroup", group.group_id), ("topic", topic), ("partition", str(index)))
            offsets.append(Sample(offset, labels))
            key = (group.group_id, topic)
            offset_sums[key] = offset_sums.get(key, 0) + offset
            partition = node.partitions.get(topic, index)
            if partition is not None:
                lag = max(partition.high_watermark - offset, 0)
                lags.append(Sample(lag, labels))
                lag_sums[key] = lag_sums.get(key, 0) + lag
    yield Family("kafka_consumergroup_members", "gauge", "Members of the group.", members)
    yield Family("kafka_consumergroup_current_offset", "gauge", "Committed offset.", offsets)
    yield Family("kafka_consumergroup_lag", "gauge", "Records not yet committed.", lags)
    for name, text, sums in (
        ("kafka_consumergroup_current_offset_sum", "Committed offsets of the topic, added up.", offset_sums),
        ("kafka_consumergroup_lag_sum", "Records of the topic not yet committed.", lag_sums),
    ):
        samples = [
            Sample(value, (("consumergroup", group), ("topic", topic)))
            for (group, topic), value in sorted(sums.items())
        ]
        yield Family(name, "gauge", text, samples)
