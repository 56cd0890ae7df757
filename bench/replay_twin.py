"""replay.c once more, in Python, for machines without a C compiler: same arguments, same line of JSON.

It is slower than a broker, so what it measures is the two together; figures that were made with it say so.
"""

from __future__ import annotations

import json
import resource
import selectors
import socket
import sys
import time
from pathlib import Path


class Connection:
    def __init__(self, port: int, frame: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame = frame
        self.under_way: list[tuple[int, bytes]] = []
        """When each request was sent, and its correlation id."""
        self.received = bytearray()


class Replay:
    def __init__(self, frames: list[bytes], depth: int, step: int, stop_ns: int, requests: int, check: int) -> None:
        self.frames, self.depth, self.step, self.check = frames, depth, step, check
        self.stop_ns, self.requests = stop_ns, requests
        self.sent = self.bytes_in = self.bytes_out = self.errors = self.first_error = 0
        self.took_ns: list[int] = []

    def send(self, connection: Connection) -> None:
        while (
            len(connection.under_way) < self.depth and self.sent < self.requests and time.monotonic_ns() < self.stop_ns
        ):
            frame = self.frames[connection.frame]
            connection.frame = (connection.frame + self.step) % len(self.frames)
            correlation_id = self.sent.to_bytes(4, "big")
            connection.under_way.append((time.monotonic_ns(), correlation_id))
            self.sent += 1
            connection.socket.sendall(b"".join((frame[:8], correlation_id, frame[12:])))
            self.bytes_out += len(frame)

    def receive(self, connection: Connection) -> None:
        data = connection.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed a connection")
        self.bytes_in += len(data)
        received = connection.received
        received += data
        while len(received) >= 4 and len(received) >= (size := 4 + int.from_bytes(received[:4], "big")):
            sent_ns, correlation_id = connection.under_way.pop(0)
            if received[4:8] != correlation_id:
                sys.exit("the answer to another request")
            self.took_ns.append(time.monotonic_ns() - sent_ns)
            if self.check >= 0 and (error := int.from_bytes(received[4 + self.check : 6 + self.check], "big")):
                self.errors += 1
                self.first_error = self.first_error or error
            del received[:size]

    def percentile(self, share: float) -> float:
        return self.took_ns[min(int(share * len(self.took_ns)), len(self.took_ns) - 1)] / 1e6


def split(data: bytes) -> list[bytes]:
    frames = []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[:size])
        data = data[size:]
    return frames


def main(port: str, path: str, count: str, depth: str, start: str, step: str, seconds: str, *rest: str) -> None:
    requests, check = map(int, rest)
    frames = split(Path(path).read_bytes())
    connections = [Connection(int(port), number * int(start) % len(frames)) for number in range(int(count))]
    started_ns = time.monotonic_ns()
    replay = Replay(frames, int(depth), int(step), started_ns + int(float(seconds) * 1e9), requests, check)
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            replay.send(connection)
        while len(replay.took_ns) < replay.sent:
            ready = selector.select(60)
            if not ready:
                sys.exit("no answer for a minute")
            for key, _ in ready:
                replay.receive(key.data)
                replay.send(key.data)
    took_s = (time.monotonic_ns() - started_ns) / 1e9
    for connection in connections:
        connection.socket.close()
    replay.took_ns.sort()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "requests": len(replay.took_ns),
        "seconds": took_s,
        "bytes_in": replay.bytes_in,
        "bytes_out": replay.bytes_out,
        "errors": replay.errors,
        "first_error": replay.first_error,
        "p50_ms": replay.percentile(0.5),
        "p99_ms": replay.percentile(0.99),
        "p999_ms": replay.percentile(0.999),
        "max_ms": replay.percentile(1.0),
        "client_s": usage.ru_utime + usage.ru_stime,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
