"""The brokers of `./dev bench groups`: one for each measurement, with what our own tells of its loop."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.lab import HEAP, page_cache
from bench.tidelog_node import TidelogNode
from tools import apache
from tools.ports import free_port

SIDES = ("tidelog", "synced", "apache")
"""Ours in page-cache mode, which is Kafka's; ours as it is by default; Apache Kafka."""
FRESH_S = 60.0


class Node:
    def __init__(self, name: str, address: str, pid: int, http: str | None) -> None:
        self.name, self.address, self.pid, self.http = name, address, pid, http

        self._stops_before: dict[str, int] = {}

    def begin(self) -> None:
        """What is measured begins here: connections, topics and warm-ups are done."""
        self._stops_before = self._stops()

    def longest_stop_ms(self) -> float | None:
        """A bound of the longest stop of our loop since `begin`: one of those of the node's histogram."""
        if self.http is None:
            return None
        new = {bound: count - self._stops_before.get(bound, 0) for bound, count in self._stops().items()}
        enough = [float(bound) for bound, count in new.items() if count == new["+Inf"]]
        return min(enough) * 1000

    def _stops(self) -> dict[str, int]:
        """How many stops were no longer than each bound, in seconds. A page that took long to make is given again for a
        while: one that differs from the first was made after this was asked."""
        if self.http is None:
            return {}
        first = found = self._page()
        deadline_s = time.perf_counter() + FRESH_S
        while found == first:
            if time.perf_counter() > deadline_s:
                raise OSError(f"no fresh page of metrics after {FRESH_S:.0f} s")
            time.sleep(0.2)
            found = self._page()
        return found

    def _page(self) -> dict[str, int]:
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = re.findall(r'^tidelog_loop_stop_seconds_bucket{le="([^"]+)"} (\d+)', text, re.MULTILINE)
        return {bound: int(count) for bound, count in found}


@contextmanager
def started(name: str, properties: Mapping[str, str]) -> Iterator[Node]:
    with TemporaryDirectory(prefix="tidelog-bench-groups-") as home, ExitStack() as stack:
        directory = Path(home) / name
        if name == "apache":
            kafka = apache.ApacheKafka(directory, heap=HEAP, properties=properties, silent=True)
            stack.callback(kafka.stop)
            kafka.start()
            assert kafka.process is not None
            yield Node(name, kafka.bootstrap_servers, kafka.process.pid, None)
            return
        http = f"127.0.0.1:{free_port()}"
        mode = {} if name == "synced" else page_cache()
        own = {**properties, **mode, "tidelog.http.listener": http}
        node = stack.enter_context(TidelogNode(directory, properties=own))
        assert node.process is not None
        yield Node(name, node.bootstrap_servers, node.process.pid, http)
