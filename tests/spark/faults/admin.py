"""One thing of an administrator, asked by our client core."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.client.errors import raise_first
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.net import OsNet


def ask(servers: str, work: Callable[[Cluster], Awaitable[Mapping[Any, Any]]]) -> Mapping[Any, Any]:
    """The answers; the first one that is an error is raised."""

    async def run() -> Mapping[Any, Any]:
        async with Cluster(OsNet(), SystemClock(), servers) as cluster:
            return await work(cluster)

    answers = asyncio.run(run())
    raise_first(answers.values())
    return answers
