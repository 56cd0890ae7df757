"""From a file to a socket without a copy (sendfile), beside the event loop's own transport.

uvloop has no such thing, so the socket's descriptor is duplicated: the copy is written and waited for here, and only
while the transport has nothing to send. Knows nothing of what is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tidelog.kernel.ports import Buffer, Part

T = TypeVar("T")
CAN_SEND: Final = sys.platform == "linux" and hasattr(os, "sendfile")
_MORE: Final[int] = getattr(socket, "MSG_MORE", 0) | getattr(socket, "MSG_NOSIGNAL", 0)
_MUCH_BYTES: Final = 64 * 1024


class OsFileSlice:
    __slots__ = ("_left", "_owner", "_position", "_take_back", "fd")

    def __init__(self, fd: int, position: int, length: int, take_back: Callable[[T], None], owner: T) -> None:
        self.fd = fd
        self._position = position
        self._left = length
        self._take_back: Callable[[Any], None] = take_back
        self._owner: Any = owner

    def __len__(self) -> int:
        return self._left

    def read(self) -> bytes:
        parts = []
        position, left = self._position, self._left
        while left and (part := os.pread(self.fd, left, position)):
            parts.append(part)
            position += len(part)
            left -= len(part)
        return b"".join(parts)

    def send(self, out: int, most: int) -> int:
        """As much as the socket takes now; how much that was."""
        count = os.sendfile(out, self.fd, self._position, min(self._left, most))
        if count == 0:
            raise OSError("the file became shorter than what was promised")
        self._position += count
        self._left -= count
        return count

    def __del__(self) -> None:
        self._take_back(self._owner)


class OsFileSender:
    def __init__(
        self, transport: asyncio.Transport, sent: Callable[[], None], closed: Callable[[], None], copy: int
    ) -> None:
        self._transport = transport
        self._sent = sent
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        # The family plays no part in sending; given, the system need not be asked for it.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=copy)
        self._socket.setblocking(False)
        self._fd = copy
        self._parts: deque[Part] = deque()
        self._is_polled = False
        self._moved = 0
        self._turn_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        return sum(map(len, self._parts))

    def send(self, parts: Sequence[Part], turn_bytes: int) -> bool:
        self._parts.extend(parts)
        self._turn_bytes = turn_bytes
        if self._go_on():
            return True
        self._wait()
        return False

    def _wait(self) -> None:
        if self._moved >= _MUCH_BYTES:
            # A peer that takes so much at once has room again by the next turn, mostly: a poll would cost more.
            self._loop.call_soon(self._try_again)
        else:
            self._is_polled = True
            self._loop.add_writer(self._fd, self._try_again)

    def _try_again(self) -> None:
        if not self._go_on():
            if not self._is_polled:
                self._wait()
        elif self._fd >= 0:  # not closed, now or since it was asked for
            self._stop_polling()
            self._sent()

    def _go_on(self) -> bool:
        """Whether nothing is left to be sent; also when nothing can be sent any more."""
        parts = self._parts
        self._moved = 0
        try:
            while parts:
                part = parts[0]
                if isinstance(part, OsFileSlice):
                    self._moved = part.send(self._fd, self._turn_bytes)
                    if part:
                        return False
                elif (rest := self._send_bytes(part, _MORE if len(parts) > 1 else 0)) is not None:
                    parts[0] = rest
                    return False
                parts.popleft()
        except BlockingIOError:
            return False
        except OSError:
            # Both ways into the socket: it ends with the last of them.
            self.close()
            self._transport.abort()
        return True

    def _send_bytes(self, part: Part, flags: int) -> Buffer | None:
        data: Buffer = part if isinstance(part, bytes | bytearray | memoryview) else part.read()
        count = self._socket.send(data, flags)
        return None if count == len(data) else memoryview(data)[count:]

    def _stop_polling(self) -> None:
        if self._is_polled:
            self._is_polled = False
            self._loop.remove_writer(self._fd)

    def close(self) -> None:
        if self._fd < 0:
            return
        self._stop_polling()
        self._parts.clear()
        self._fd = -1
        self._socket.close()
        self._closed()


class FileSenders:
    """Those that are open: each has a descriptor that no limit of connections counts."""

    def __init__(self, most: int = 256) -> None:
        self._left = most

    def make(self, transport: asyncio.Transport, sent: Callable[[], None]) -> OsFileSender | None:
        connected = transport.get_extra_info("socket")
        if not CAN_SEND or connected is None or self._left <= 0:
            return None
        if transport.get_extra_info("sslcontext") is not None:
            return None
        try:
            copy = os.dup(connected.fileno())
        except OSError:  # no descriptor is left, or the socket is gone
            return None
        self._left -= 1
        return OsFileSender(transport, sent, self._closed, copy)

    def _closed(self) -> None:
        self._left += 1
