"""Ports for servers that must know theirs before they start."""

from __future__ import annotations

import random
import socket

_ROW = range(20_000, 32_768)
"""Below the ports that systems hand out by themselves, to connections and to listeners on port 0."""
_chance = random.SystemRandom()
_held: list[int] = []
"""Descriptors, which Python does not close, nor complain of, at the end of the process."""


def free_port() -> int:
    """A port of loopback on which nobody listens and which nobody else is given while this process lives.

    A port that the system chose and took back would be free to be chosen again before our server listens on it. The
    UDP port of the same number, held open, is what tells other processes that this one is spoken for.
    """
    while True:
        port = _chance.choice(_ROW)
        token = socket.socket(type=socket.SOCK_DGRAM)
        try:
            token.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            token.close()
            continue
        _held.append(token.detach())
        return port
