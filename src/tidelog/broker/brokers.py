"""The brokers as a client on one connection should dial them."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.broker.context import RequestContext
from tidelog.metadata.image import BrokerImage


def broker_addresses(
    ctx: RequestContext, brokers: list[BrokerImage] | None = None
) -> Iterator[tuple[int, str, int, str | None]]:
    """(id, host, port, rack) of each broker that has an address on the listener that was asked."""
    listener = ctx.connection.listener
    for broker in ctx.services.image.live_brokers() if brokers is None else brokers:
        if broker.broker_id == ctx.services.node_id:
            host, port = listener.address_for(ctx.connection)
            yield broker.broker_id, host, port, broker.rack
            continue
        for endpoint in broker.endpoints:
            if endpoint.name == listener.name:
                yield broker.broker_id, endpoint.host, endpoint.port, broker.rack
