"""The audit topic through the client core: all notices up to its ends now."""

from __future__ import annotations

from tidelog.audit.notices import AUDIT_TOPIC, NoticeError, decode
from tidelog.audit.tiers import SILENT_WINDOWS, Tiers
from tidelog.client.cluster import Cluster
from tidelog.client.errors import MissingError
from tidelog.client.fetching import READ_COMMITTED, FetchLimits, fetch
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.records import read_out


class ReadTiers(Tiers):
    """Tiers, and what the topic was like."""

    strangers = 0
    """Records that were no notices."""
    has_topic = True


async def read_tiers(
    cluster: Cluster, *, window_ms: int, topic: str = AUDIT_TOPIC, silent_windows: int = SILENT_WINDOWS
) -> ReadTiers:
    """Without such a topic nobody has told anything, and that is what the tiers say."""
    now_ms = cluster.clock.wall_ms()
    tiers = ReadTiers(window_ms, silent_windows=silent_windows)
    try:
        partitions = (await cluster.topic(topic)).partitions
    except MissingError:
        tiers.has_topic = False
        return tiers
    places = [TopicPartition(topic, number) for number in partitions]
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, LATEST), isolation_level=READ_COMMITTED)
    limits = FetchLimits(isolation_level=READ_COMMITTED)
    for at in places:
        position, end = starts[at].offset, ends[at].offset
        is_cut = position > 0
        first_ms: int | None = None
        while position < end:
            found = read_out(at, await fetch(cluster, at, position, limits), position, READ_COMMITTED)
            for record in found.records:
                first_ms = record.timestamp if first_ms is None else first_ms
                try:
                    tiers.add(decode(record.value), after_gone=is_cut)
                except NoticeError:
                    tiers.strangers += 1
            position = found.next_offset
        if is_cut:
            # A window is told of when it is over: what is left is of windows that ended after the first of it.
            left_from_ms = now_ms if first_ms is None else first_ms
            tiers.forgotten_before_ms = max(left_from_ms, tiers.forgotten_before_ms or 0)
    return tiers
