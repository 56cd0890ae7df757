"""The row of the floor: what the same bytes cost when nobody speaks a protocol."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from bench.row import Figures, Row, Run, Side

IN, OUT = "socket to file", "file to socket"
CHUNK = 1 << 20


def _prepare(run: Run) -> None:
    path = run.lab.home / f"{run.lab.fresh_name()}.floor"
    command = [sys.executable, "-m", "bench.floor", run.side.node, str(path)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    run.kept.update(server=server, path=path, port=int(server.stdout.readline()))


def _measure(run: Run) -> Figures:
    server, path = run.kept["server"], run.kept["path"]
    if run.point == OUT and (not path.exists() or path.stat().st_size != run.bytes):
        _fill(path, run.bytes)
    with socket.create_connection(("127.0.0.1", run.kept["port"]), timeout=60) as peer:
        if run.point == IN:
            _push(peer, run.bytes)
        else:
            _pull(peer)
    took = json.loads(server.stdout.readline())
    if run.point == IN:
        path.unlink()
        os.sync()
    gb = took["bytes"] / 1e9
    return {
        "mb_per_s": took["bytes"] / 1e6 / took["seconds"],
        "user_s_per_gb": took["user_s"] / gb,
        "system_s_per_gb": took["system_s"] / gb,
        "total_s_per_gb": (took["user_s"] + took["system_s"]) / gb,
    }


def _push(peer: socket.socket, count: int) -> None:
    data = memoryview(os.urandom(CHUNK))
    peer.sendall(b"i")
    for left in range(count, 0, -CHUNK):
        peer.sendall(data[: min(left, CHUNK)])


def _pull(peer: socket.socket) -> None:
    buffer = bytearray(CHUNK)
    peer.sendall(b"o")
    while peer.recv_into(buffer):
        pass


def _fill(path: Path, count: int) -> None:
    data = os.urandom(CHUNK)
    with path.open("wb") as file:
        for left in range(count, 0, -CHUNK):
            file.write(data[: min(left, CHUNK)])
    os.sync()


def _finish(run: Run) -> None:
    if server := run.kept.get("server"):
        server.stdin.close()
        server.wait(30)
        server.stdout.close()
        run.kept["path"].unlink(missing_ok=True)


ROWS = (
    Row(
        name="floor",
        title="the floor: the same bytes without a protocol",
        prepare=_prepare,
        measure=_measure,
        finish=_finish,
        sides=(Side("system calls", "blocking"), Side("uvloop", "uvloop")),
        points=(IN, OUT),
        client="plain sockets",
        shows=("mb_per_s", "user_s_per_gb", "system_s_per_gb"),
        seconds_per_gb=1.0,
        overhead_s=0.3,
    ),
)
