"""The limits of the settings, as the broker's objects want them."""

from __future__ import annotations

import asyncio

from tidelog.broker.ledger import REQUEST_BYTES_MAX, Ledger
from tidelog.kernel.ports import SocketOptions
from tidelog.node.config import NodeConfig
from tidelog.node.ports import Ports


def make_ledger(config: NodeConfig, ports: Ports) -> Ledger:
    request_bytes = config.get_int("queued.max.request.bytes")
    if request_bytes <= 0:
        request_bytes = max(REQUEST_BYTES_MAX, config.get_int("socket.request.max.bytes"))
    return Ledger(
        ports.clock.monotonic_s,
        lambda callback: asyncio.get_running_loop().call_soon(callback),
        request_bytes_max=request_bytes,
        answer_bytes_max=config.get_int("tidelog.queued.max.response.bytes"),
        connections_max=ports.connections_max,
    )


def socket_options(config: NodeConfig) -> SocketOptions:
    return SocketOptions(
        backlog=config.get_int("socket.listen.backlog.size"),
        send_bytes=config.get_int("socket.send.buffer.bytes"),
        receive_bytes=config.get_int("socket.receive.buffer.bytes"),
    )
