"""How clean the partitions of a topic are, for `tidelog topic describe --cleaning`.

Kafka's protocol has no word for it: the nodes' own metrics tell. Where they are is a config of each
(tidelog.http.listener); who cannot reach that address is told so, and the rest is shown without.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicInfo

_TIMEOUT_S: Final = 5.0
_LISTENER: Final = "tidelog.http.listener"
_WILDCARDS: Final = ("", "0.0.0.0", "::")
_SAMPLE: Final = re.compile(
    r'^(tidelog_log_dirty_ratio|tidelog_log_last_clean_timestamp_seconds|tidelog_log_uncleanable)\{topic="(.*)",'
    r'partition="(\d+)"\} (\S+)$',
    re.MULTILINE,
)


class Cleaning(NamedTuple):
    dirty_ratio: float | None = None
    """None for a partition that is not compacted, or whose node was not reached."""
    last_clean_ms: int | None = None
    is_uncleanable: bool = False


async def cleaning_of(cluster: Cluster, topic: TopicInfo) -> dict[int, Cleaning]:
    found: dict[int, Cleaning] = {}
    for node in sorted({partition.leader for partition in topic.partitions.values() if partition.leader >= 0}):
        try:
            page = await _metrics(cluster, node)
        except (OSError, ValueError, TimeoutError) as error:
            print(f"the metrics of node {node} cannot be read: {error or 'no answer'}", file=sys.stderr)
            continue
        found |= read_page(page, topic.name)
    return {index: found.get(index, Cleaning()) for index in topic.partitions}


def read_page(page: str, topic: str) -> dict[int, Cleaning]:
    """By partition, from a page of metrics."""
    found: dict[int, Cleaning] = {}
    for name, named, index, value in _SAMPLE.findall(page):
        if named != topic:
            continue
        known = found.get(int(index), Cleaning())
        match name:
            case "tidelog_log_dirty_ratio":
                known = known._replace(dirty_ratio=float(value))
            case "tidelog_log_last_clean_timestamp_seconds":
                known = known._replace(last_clean_ms=round(float(value) * 1000))
            case _:
                known = known._replace(is_uncleanable=True)
        found[int(index)] = known
    return found


async def _metrics(cluster: Cluster, node: int) -> str:
    from tidelog.client.configs import Resource, ResourceType, describe_configs

    entries = await describe_configs(cluster, Resource(ResourceType.BROKER, str(node)))
    value = next((entry.value for entry in entries if entry.name == _LISTENER), None)
    if not value:
        raise ValueError(f"it has no {_LISTENER}")
    host, _, port = value.rpartition(":")
    if host.strip("[]") in _WILDCARDS:
        host = cluster.metadata.brokers[node].host
    return await asyncio.wait_for(_get(host.strip("[]"), int(port)), _TIMEOUT_S)


async def _get(host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head, _, page = (await reader.read()).partition(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
            raise ValueError(head.partition(b"\r\n")[0].decode(errors="replace"))
        return page.decode()
    finally:
        writer.close()
