"""The Net port on the running event loop's sockets (asyncio or uvloop; both set TCP_NODELAY by themselves)."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog.kernel.errors import ListenError
from tidelog.kernel.ports import FileSender, SocketOptions
from tidelog.runtime.accepting import Acceptor
from tidelog.runtime.sending import FileSenders

if TYPE_CHECKING:
    from ssl import SSLContext

_WILDCARDS: Final = ("", "::", "[::]")
UNSENT_BYTES_MAX: Final = 256 * 1024


class OsListener:
    def __init__(self, server: asyncio.AbstractServer | Acceptor, host: str, port: int) -> None:
        self._server = server
        self._host = host
        self._port = port

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self._server.close()


class OsNet:
    def __init__(self) -> None:
        self._senders = FileSenders()

    async def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
        options: SocketOptions = SocketOptions(),  # noqa: B008 - it never changes
    ) -> OsListener:
        loop = asyncio.get_running_loop()
        try:
            bound = await _bind(loop, host, port)
        except (OSError, OverflowError) as error:
            raise ListenError(_reason(host, port, error)) from error
        try:
            # What it accepts inherits them; set later, they would not shape the window that a peer is offered.
            for option, size in ((socket.SO_SNDBUF, options.send_bytes), (socket.SO_RCVBUF, options.receive_bytes)):
                if size > 0:
                    bound.setsockopt(socket.SOL_SOCKET, option, size)
            if (lowat := getattr(socket, "TCP_NOTSENT_LOWAT", None)) is not None:
                # Peers that do not read would fill the system's buffers with megabytes each, and those have a bound for
                # all connections together: then nobody's packets pass.
                bound.setsockopt(socket.IPPROTO_TCP, lowat, UNSENT_BYTES_MAX)
            server = await _serve(loop, bound, factory, options.backlog)
        except OSError as error:
            bound.close()
            raise ListenError(_reason(host, port, error)) from error
        return OsListener(server, host, int(bound.getsockname()[1]))

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], tls: SSLContext | None = None
    ) -> asyncio.Transport:
        transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port, ssl=tls)
        return transport

    def file_sender(self, transport: asyncio.Transport, sent: Callable[[], None]) -> FileSender | None:
        return self._senders.make(transport, sent)


async def _serve(
    loop: asyncio.AbstractEventLoop, bound: socket.socket, factory: Callable[[], asyncio.BaseProtocol], backlog: int
) -> asyncio.AbstractServer | Acceptor:
    if not type(loop).__module__.startswith("uvloop"):
        return await loop.create_server(factory, sock=bound, backlog=backlog)
    acceptor = Acceptor(loop, bound, factory)
    acceptor.start(backlog)
    return acceptor


async def _bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """One socket, so that port 0 means one port; a wildcard listens on IPv4 and IPv6 alike."""
    if not 0 <= port <= 65535:
        raise OverflowError
    if host not in _WILDCARDS:
        found = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return _bound_socket(family, address)
    if socket.has_dualstack_ipv6():
        return _bound_socket(socket.AF_INET6, ("::", port))
    return _bound_socket(socket.AF_INET, ("0.0.0.0", port))


def _bound_socket(family: int, address: tuple[Any, ...]) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets that say they are TCP, and an accepted one says what its listener says.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere this lets two programs share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _reason(host: str, port: int, error: Exception) -> str:
    address = f"{host or '*'}:{port}"
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {address}: the host name is not known here"
    if isinstance(error, OverflowError):
        return f"cannot listen on {address}: a port is a number from 0 to 65535"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"cannot listen on {address}: another program listens there; stop it or choose another port"
    if number == errno.EADDRNOTAVAIL:
        return f"cannot listen on {address}: this machine has no such address"
    if number == errno.EACCES:
        return f"cannot listen on {address}: not allowed; ports below 1024 often need a privilege"
    return f"cannot listen on {address}: {os.strerror(number) if number else error}"
