"""How an API is registered: its key, the versions we serve, and the function that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from tidelog.protocol.apis import APIS

if TYPE_CHECKING:
    from tidelog.broker.connection import Again
    from tidelog.broker.context import Encoded, Parked, RequestContext

Answer: TypeAlias = "Struct | Encoded | Parked | asyncio.Future[Any] | None"
"""A response now (perhaps encoded), one that was parked, one that a future will bring, or none at all (acks=0)."""


@dataclass(slots=True, eq=False)
class Api:
    key: int
    versions: range
    handle: Callable[[Any, RequestContext], Answer]
    learn: Callable[[Any, RequestContext], Again | None] | None = None
    """For the APIs that are asked most: how to answer the same again, faster."""
    advertised_from: int | None = None
    """Produce says that it speaks versions which it refuses: older librdkafka switches compression off otherwise."""
    name: str = field(init=False)
    request_class: type[Struct] = field(init=False)
    count: int = field(init=False, default=0)
    seconds: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        facts = APIS[self.key]
        self.name = facts.name
        self.request_class = facts.request_class()
        assert facts.min_version <= self.versions.start and self.versions.stop - 1 <= facts.max_version, self.name
