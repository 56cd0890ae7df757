"""The floor: bytes from a socket to a file and from a file to a socket with no protocol, in a process of its own.

`python -m bench.floor KIND FILE` prints its port, serves one connection after the other until its input ends, and says
what each took. The first byte of a connection says which way: `i` into the file, `o` out of it. KIND is `blocking` (a
loop of system calls, sendfile outwards: what any language pays) or `uvloop` (what a Python server can reach).
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
import threading
import time
from pathlib import Path

CHUNK = 1 << 20


def _report(started: float, before: resource.struct_rusage, count: int) -> None:
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    took = {"seconds": time.monotonic() - started, "user_s": user, "system_s": system, "bytes": count}
    print(json.dumps(took), flush=True)


def _into(peer: socket.socket, path: Path) -> int:
    buffer = memoryview(bytearray(CHUNK))
    count = 0
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    while got := peer.recv_into(buffer):
        os.write(fd, buffer[:got])
        count += got
    os.close(fd)
    return count


def _out_of(peer: socket.socket, path: Path) -> int:
    count = 0
    fd = os.open(path, os.O_RDONLY)
    while sent := os.sendfile(peer.fileno(), fd, count, CHUNK):
        count += sent
    os.close(fd)
    return count


def blocking(listener: socket.socket, path: Path) -> None:
    while True:
        peer, _ = listener.accept()
        with peer:
            way = peer.recv(1)
            started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
            _report(started, before, _into(peer, path) if way == b"i" else _out_of(peer, path))


class Pipe(asyncio.BufferedProtocol):
    """One connection on the loop; the way a broker's hot path would have it, less everything a broker does."""

    buffer = memoryview(bytearray(CHUNK))

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = -1
        self.count = 0
        self.way = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        data = self.buffer[:count]
        if self.fd < 0:
            self.way = bytes(data[:1])
            data = data[1:]
            self.started, self.before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
            flags = os.O_RDONLY if self.way == b"o" else os.O_CREAT | os.O_WRONLY | os.O_TRUNC
            self.fd = os.open(self.path, flags)
            if self.way == b"o":
                self.transport.set_write_buffer_limits(high=CHUNK)
                self.resume_writing()
                return
        self.count += os.write(self.fd, data)

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        while not self.is_paused:
            data = os.pread(self.fd, CHUNK, self.count)
            if not data:
                self.transport.close()
                return
            self.count += len(data)
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            _report(self.started, self.before, self.count)


async def on_loop(listener: socket.socket, path: Path) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Pipe(path), sock=listener)
    await server.serve_forever()


def main(kind: str, path: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    # The parent's end of our input closes with the parent, however that ends.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    if kind == "blocking":
        blocking(listener, Path(path))
    else:
        import uvloop

        uvloop.run(on_loop(listener, Path(path)))


if __name__ == "__main__":
    main(*sys.argv[1:])
