"""How clean the partitions of compacted topics are, for `tidelog topic describe`.

Kafka's protocol has no word for it: the nodes' own metrics tell. Where they are is a config of each
(tidelog.http.listener). Who cannot reach that address, or asks a broker that has none, is told so in a word and soon,
and the command goes on.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.kernel.errors import TidelogError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.cluster import Cluster
    from tidelog.client.configs import ConfigEntry
    from tidelog.client.metadata import TopicInfo

_TIMEOUT_S: Final = 2.0
_LISTENER: Final = "tidelog.http.listener"
_WILDCARDS: Final = ("", "0.0.0.0", "::")
_SAMPLE: Final = re.compile(
    r'^(tidelog_log_dirty_ratio|tidelog_log_last_clean_timestamp_seconds|tidelog_log_uncleanable)\{topic="(.*)",'
    r'partition="(\d+)"\} (\S+)$',
    re.MULTILINE,
)
_NODE: Final = re.compile(r'^tidelog_node_info\{cluster_id="(.*)",node_id="(\d+)"\} 1$', re.MULTILINE)


class Cleaning(NamedTuple):
    dirty_ratio: float | None = None
    """None for a partition that the cleaner has not looked at yet, or whose node was not reached."""
    last_clean_ms: int | None = None
    """The last one since the node was started."""
    is_uncleanable: bool = False
    unknown: str | None = None
    """Why nothing is known of it."""

    def as_text(self) -> str:
        from tidelog.cli.times import format_time

        if self.unknown is not None:
            return f"\tDirty: unknown\tCleaned: unknown ({self.unknown})"
        ratio = "-" if self.dirty_ratio is None else f"{self.dirty_ratio:.2f}"
        last = "-" if self.last_clean_ms is None else format_time(self.last_clean_ms)
        return f"\tDirty: {ratio}\tCleaned: {'uncleanable' if self.is_uncleanable else last}"

    def as_fields(self) -> dict[str, Any]:
        return {
            "dirty_ratio": self.dirty_ratio,
            "last_clean_ms": self.last_clean_ms,
            "uncleanable": self.is_uncleanable,
            "cleaning_unknown": self.unknown,
        }


class CleaningPages:
    """The pages of metrics of a cluster's nodes: each is fetched at most once, however many topics ask."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pages: dict[int, str] = {}
        self._troubles: dict[int, str] = {}

    async def cleaning_of(self, topic: TopicInfo, configs: Iterable[ConfigEntry]) -> dict[int, Cleaning]:
        """By partition; empty for a topic that is not compacted."""
        if not any(entry.name == "cleanup.policy" and "compact" in (entry.value or "") for entry in configs):
            return {}
        leaders = {partition.leader for partition in topic.partitions.values() if partition.leader >= 0}
        await asyncio.gather(*(self._bring(node) for node in sorted(leaders - self._pages.keys())))
        pages = {node: read_page(self._pages[node], topic.name) for node in leaders}
        return {
            index: self._found(pages, partition.leader, index) for index, partition in sorted(topic.partitions.items())
        }

    def _found(self, pages: dict[int, dict[int, Cleaning]], leader: int, index: int) -> Cleaning:
        if leader < 0:
            return Cleaning(unknown="no leader")
        if leader in self._troubles:
            return Cleaning(unknown=self._troubles[leader])
        return pages[leader].get(index, Cleaning())

    async def _bring(self, node: int) -> None:
        self._pages[node] = ""
        try:
            self._pages[node] = await asyncio.wait_for(_metrics(self._cluster, node), _TIMEOUT_S)
        except TimeoutError:
            self._troubles[node] = f"node {node} has not shown its metrics within {_TIMEOUT_S:g} s"
        except (OSError, ValueError, TidelogError) as error:
            self._troubles[node] = str(error) or type(error).__name__


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
    host, _, port = (value or "").rpartition(":")
    if not port.isdecimal() or int(port) == 0:
        raise ValueError(f"node {node} has no {_LISTENER}" + (" with a fixed port" if port else ""))
    if host.strip("[]") in _WILDCARDS:
        host = cluster.metadata.brokers[node].host
    page = await _get(host.strip("[]"), int(port))
    if _NODE.findall(page) != [(cluster.metadata.cluster_id, str(node))]:
        # The default is an address of the node's own machine, where another node may listen, or nobody's business.
        raise ValueError(f"{value} is not of node {node}")
    return page


async def _get(host: str, port: int) -> str:
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        raise ValueError(f"{host}:{port} cannot be reached") from error
    try:
        writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head, _, page = (await reader.read()).partition(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
            raise ValueError(f"{host}:{port} shows no metrics")
        return page.decode()
    finally:
        writer.close()
