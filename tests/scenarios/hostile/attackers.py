"""Peers that mean harm, in a process of their own: their memory and descriptors are not the node's.

    python -m tests.scenarios.hostile.attackers MODE HOST:PORT CONNECTIONS TOPIC

Prints `ready` when the harm is done, then holds on to its connections until its standard input ends. What it prints
then is how many of its connections the node has ended.
"""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import struct
import sys
from collections.abc import Callable

from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.fetch import FetchRequest
from tidelog.protocol.messages.metadata import MetadataRequest

FRAME_BYTES = 90 << 20


def fetch(topic: str, *, wait_ms: int, offset: int = 0) -> bytes:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 30)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 30,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    return encode_request(request, 11, 1, "hostile")


def send(peer: socket.socket, data: bytes) -> None:
    """As much as it takes without waiting."""
    with contextlib.suppress(OSError):
        peer.setblocking(False)
        peer.send(data)


def idle(peers: list[socket.socket], topic: str) -> None:
    pass


def never_read(peers: list[socket.socket], topic: str) -> None:
    for peer in peers:
        send(peer, fetch(topic, wait_ms=0) * 50)


def parked_then_woken(peers: list[socket.socket], topic: str) -> None:
    """Every one of them will be answered with megabytes, by the append that wakes them all."""
    for peer in peers:
        send(peer, fetch(topic, wait_ms=600_000, offset=0) * 200)


def drip(peers: list[socket.socket], topic: str) -> None:
    """Frames that are announced and never come."""
    for peer in peers:
        send(peer, struct.pack(">i", FRAME_BYTES))
    for _ in range(20):
        for peer in peers:
            send(peer, b"x")


def unfinished(peers: list[socket.socket], topic: str) -> None:
    """Megabytes of a frame each, but never its end."""
    chunk = bytes(256 * 1024)
    for peer in peers:
        send(peer, struct.pack(">i", FRAME_BYTES))
    for _ in range(40):
        for peer in peers:
            send(peer, chunk)


def without_end(peers: list[socket.socket], topic: str) -> None:
    """Small requests, pipelined, until the node stops reading. Nothing is read of what it answers."""
    small = encode_request(ApiVersionsRequest(), 0, 1, None) * 500 + encode_request(MetadataRequest(), 9, 1, None) * 500
    for _ in range(8):
        for peer in peers:
            send(peer, small)


MODES: dict[str, Callable[[list[socket.socket], str], None]] = {
    "idle": idle,
    "never-read": never_read,
    "parked": parked_then_woken,
    "drip": drip,
    "unfinished": unfinished,
    "without-end": without_end,
}


def connect(address: str, count: int, source: str) -> list[socket.socket]:
    host, _, port = address.rpartition(":")
    peers = []
    for _ in range(count):
        peer = socket.socket()
        # Both ends share this machine's memory for sockets; with a peer elsewhere, this end's would not be ours.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        peer.bind((source, 0))
        peer.connect((host, int(port)))
        peers.append(peer)
    return peers


def ended(peers: list[socket.socket]) -> int:
    poll = select.poll()
    for peer in peers:
        poll.register(peer, select.POLLRDHUP)
    return len(poll.poll(0))


def main() -> None:
    mode, address, count, topic, source = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    peers = connect(address, int(count), source)
    MODES[mode](peers, topic)
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "ended?\n":
            print(ended(peers), flush=True)


if __name__ == "__main__":
    main()
