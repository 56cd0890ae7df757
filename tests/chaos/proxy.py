"""A TCP proxy that knows where Kafka's frames begin: it holds back, repeats, loses or drops single requests by API key,
and cuts connections. It owns the wire between clients and one broker and knows nothing of what the messages mean.

It does what a network may do. A request that is held holds back all behind it on its connection; when its client gives
up and dials again the old connection to the broker stays open, and `release()` delivers what was on its way.

Clients must be told the proxy's address (advertised.listeners), which stays the same while brokers come and go."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal

What = Literal["hold", "copy", "lose-answer", "drop"]
WAIT_S = 60.0
_HEAD = struct.Struct(">hhi")


class Trap:
    """One request that the proxy is to catch. `wait()` returns when it has come."""

    def __init__(self, proxy: Proxy, what: What, api_key: int, passes: int) -> None:
        self.what = what
        self.api_key = api_key
        self.passes = passes
        """How many requests of this key are let through first."""
        self.frame = b""
        self._proxy = proxy
        self._caught = threading.Event()
        self._answered = threading.Event()
        self._answers: list[bytes] = []
        self._connection: _Connection | None = None
        self.released = asyncio.Event()

    def caught(self, connection: _Connection, frame: bytes) -> None:
        self._connection = connection
        self.frame = frame
        self._caught.set()

    def answered(self, frame: bytes) -> None:
        self._answers.append(frame)
        self._answered.set()

    def wait(self, timeout_s: float = WAIT_S) -> None:
        if not self._caught.wait(timeout_s):
            raise TimeoutError(f"no request with API key {self.api_key} came")

    @property
    def has_come(self) -> bool:
        return self._caught.is_set()

    def release(self) -> None:
        """What was held goes to the broker, and all that came behind it."""
        self._proxy.call(self.released.set)

    def send_again(self) -> None:
        """The same bytes once more on the connection on which they came."""
        assert self._connection is not None
        self._answered.clear()
        self._proxy.call(self._connection.to_broker, self.frame)

    def hang_up(self) -> None:
        """The client's side of that connection is gone. The broker's stays."""
        assert self._connection is not None
        self._proxy.call(self._connection.hang_up)

    def closed(self) -> None:
        """The connection is over: what has not been answered never will be."""
        if not self._answered.is_set():
            self.answered(b"")

    def wait_answered(self, timeout_s: float = WAIT_S) -> bytes:
        """The broker's answer, whether or not a client was there to hear it, without its size; nothing when the broker
        closed the connection instead."""
        if not self._answered.wait(timeout_s):
            raise TimeoutError(f"no answer came to the request with API key {self.api_key}")
        return self._answers[-1]


class Proxy:
    """A context manager. The loop runs in a thread of its own; all methods may be called from any thread."""

    def __init__(self, broker: str = "", *, seed: int = 0) -> None:
        self.address = ""
        self.broker = broker
        """May change: the next connections go there."""
        self.lose_answers = 0.0
        """The part of the answers to Produce, AddPartitionsToTxn, TxnOffsetCommit and EndTxn at which the connection
        is cut instead: the effect has happened, the client does not know."""
        self.requests = 0
        self.cuts = 0
        self.chance = random.Random(seed)
        self.connections: set[_Connection] = set()
        self._traps: list[Trap] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._server: asyncio.Server | None = None

    # life

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Proxy:
        self._thread.start()
        self.run(self._listen())
        return self

    def stop(self) -> None:
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        while self.connections:
            connection = next(iter(self.connections))
            connection.cut()
            await connection.over.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.broker.rpartition(":")
        try:
            upstream = await asyncio.open_connection(host, int(port))
        except (OSError, ValueError):
            writer.transport.abort()
            return
        await _Connection(self, (reader, writer), upstream).run()

    # what it is asked to do

    def catch(self, what: What, api_key: int, *, passes: int = 0) -> Trap:
        """hold: it waits for release(). copy: it goes through and can be sent again. lose-answer: it goes through, at
        its answer the client's connection is cut. drop: it is gone, without an answer."""
        trap = Trap(self, what, api_key, passes)
        with self._lock:
            self._traps.append(trap)
        return trap

    def cut_all(self) -> None:
        self.call(self._cut_all)

    def _cut_all(self) -> None:
        for connection in list(self.connections):
            self.cuts += 1
            connection.cut()

    def trap_for(self, api_key: int) -> Trap | None:
        with self._lock:
            for trap in self._traps:
                if trap.api_key == api_key:
                    if trap.passes:
                        trap.passes -= 1
                        continue
                    self._traps.remove(trap)
                    return trap
        return None

    def loses(self, api_key: int) -> bool:
        return api_key in _WITH_EFFECT and self.lose_answers > 0 and self.chance.random() < self.lose_answers


_WITH_EFFECT = frozenset((0, 24, 26, 28))


class _Connection:
    """One client's connection and its own one to the broker."""

    def __init__(
        self,
        proxy: Proxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._client_in, self._client_out = client
        self._broker_in, self._broker_out = broker
        self._awaited: dict[int, Trap] = {}
        self._fatal: set[int] = set()
        """Correlation ids of requests at whose answer the client is cut off."""
        self._cut = asyncio.Event()
        self.over = asyncio.Event()

    async def run(self) -> None:
        self._proxy.connections.add(self)
        requests = asyncio.create_task(self._pump_requests())
        answers = asyncio.create_task(self._pump_answers())
        cut = asyncio.create_task(self._cut.wait())
        try:
            # A broker that is gone ends it at once; a client that is gone when all it sent has been delivered.
            await asyncio.wait((requests, answers, cut), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (requests, answers, cut):
                task.cancel()
            await asyncio.gather(requests, answers, cut, return_exceptions=True)
            self._client_out.transport.abort()
            self._broker_out.close()
            self._proxy.connections.discard(self)
            for trap in self._awaited.values():
                trap.closed()
            self.over.set()

    def cut(self) -> None:
        self._cut.set()

    def hang_up(self) -> None:
        self._client_out.transport.abort()

    def to_broker(self, frame: bytes) -> None:
        self._broker_out.write(len(frame).to_bytes(4, "big") + frame)

    async def _pump_requests(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                frame = await _read_frame(self._client_in)
                api_key, _, correlation_id = _HEAD.unpack_from(frame)
                self._proxy.requests += 1
                if self._proxy.loses(api_key):
                    self._fatal.add(correlation_id)
                if await self._passes(api_key, correlation_id, frame):
                    self.to_broker(frame)
                    await self._broker_out.drain()
        if self._awaited:
            # Something of it was caught: it may still be sent, and its answer is wanted.
            await self._cut.wait()

    async def _passes(self, api_key: int, correlation_id: int, frame: bytes) -> bool:
        trap = self._proxy.trap_for(api_key)
        if trap is None:
            return True
        self._awaited[correlation_id] = trap
        trap.caught(self, frame)
        match trap.what:
            case "hold":
                await trap.released.wait()
            case "lose-answer":
                self._fatal.add(correlation_id)
            case "drop":
                return False
        return True

    async def _pump_answers(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                frame = await _read_frame(self._broker_in)
                correlation_id = int.from_bytes(frame[:4], "big", signed=True)
                if trap := self._awaited.get(correlation_id):
                    trap.answered(frame)
                if correlation_id in self._fatal:
                    self._proxy.cuts += 1
                    return
                if not self._client_out.is_closing():
                    self._client_out.write(len(frame).to_bytes(4, "big") + frame)
                    await self._client_out.drain()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)
