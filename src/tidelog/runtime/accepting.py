"""Connections accepted by the dozen. uvloop takes one in each turn of the loop: while two hundred that are served keep
a turn busy for milliseconds, two hundred that come wait for most of a second, and of a thousand some are never seen."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

_LOG: Final = logging.getLogger(__name__)
TURN_MAX: Final = 64
"""Accepted in one turn; those who are served wait meanwhile, some 50 µs for each."""
_REST_S: Final = 1.0
_WANTING: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Owns a listening socket. Whoever comes is made a transport of the running loop, in the order of their coming."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, bound: socket.socket, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._loop = loop
        self._socket = bound
        self._factory = factory
        self._welcoming: set[asyncio.Task[None]] = set()
        self._rest: asyncio.TimerHandle | None = None

    def start(self, backlog: int) -> None:
        self._socket.setblocking(False)
        # What it accepts inherits it.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.listen(backlog)
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        else:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _on_readable(self) -> None:
        for _ in range(TURN_MAX):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _WANTING:
                    # Linux hands on what befell the one that was waiting (EPROTO, ENETDOWN, EHOSTUNREACH ...). That is
                    # no bug of ours, which would end the node; the next one may be well, and the loop comes back.
                    _LOG.debug("a connection ended before it was accepted: %s", error)
                    return
                _LOG.warning("no connection is accepted for %.0f s: %s", _REST_S, error.strerror)
                # Readable it stays; without a rest the loop would turn for nothing.
                self._loop.remove_reader(self._socket.fileno())
                self._rest = self._loop.call_later(_REST_S, self._resume)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._welcome(accepted))
            self._welcoming.add(task)
            task.add_done_callback(self._welcoming.discard)

    def _resume(self) -> None:
        self._rest = None
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    async def _welcome(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError as error:  # gone again
            accepted.close()
            _LOG.debug("a connection ended before it began: %s", error)
