"""An ephemeral node on a free port of loopback: in a thread of this process, in a process of its own, or on your
loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidelog.node.config import load
from tidelog.node.node import Node
from tidelog.node.ports import os_ports
from tidelog.testing.wire import Wire

if TYPE_CHECKING:
    from typing import Self

DEFAULTS: Final[Mapping[str, str]] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "tidelog.http.listener": "",
}
"""What a fixture sets apart from a node that is served: no waiting for late members, few internal partitions."""

_LOG_LINES: Final = 2000
_numbers = itertools.count(1)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=_LOG_LINES)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class Broker:
    """A context manager, plain or async. In a thread it is up within tens of milliseconds; `process=True` costs a
    Python start more and leaves this process's GIL alone; `async with` runs the node on the running loop."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        process: bool = False,
        data: str | os.PathLike[str] | None = None,
    ) -> None:
        # Data that nobody keeps need not survive a power cut.
        mode = {"tidelog.sync.mode": "page-cache"} if data is None else {}
        self._config = {**DEFAULTS, **mode, **(config or {})}
        self._in_process = not process
        self._given_data = None if data is None else os.fspath(data)
        self._data: str | None = None
        self._node: Node | None = None
        self._runner: _ThreadRunner | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines = _Lines()
        self._addresses: list[str] = []

    @property
    def bootstrap_servers(self) -> str:
        if not self._addresses:
            raise RuntimeError("the broker is not running: use it as a context manager, or call start()")
        return ",".join(self._addresses)

    @property
    def log(self) -> str:
        """What the node has logged."""
        return "\n".join(self._lines.lines)

    @property
    def data(self) -> str:
        """The data directory, removed at the end unless it was given."""
        assert self._data is not None
        return self._data

    # life

    def start(self) -> Self:
        if self._data is not None:
            raise RuntimeError("the broker is running already; another one is another Broker()")
        self._prepare()
        try:
            if self._in_process:
                self._runner = _ThreadRunner()
                self._node = self._make_node()
                self._runner.loop.set_exception_handler(self._node.on_loop_error)
                self._runner.run(self._node.start())
                self._addresses = self._node.addresses
            else:
                self._start_process()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """A clean stop. Raises when the node had failed: a bug of its own must not pass for a test that passed."""
        node = self._node
        try:
            if self._runner is not None:
                self._stop_thread(self._runner)
            if self._process is not None:
                self._stop_process(self._process)
        finally:
            self._clean_up()
        if node is not None:
            node.raise_failure()

    def _stop_thread(self, runner: _ThreadRunner) -> None:
        try:
            if self._node is not None:
                runner.run(self._node.stop())
        finally:
            runner.close()
            self._runner = None

    def _stop_process(self, process: subprocess.Popen[str]) -> None:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._end_process()

    def kill(self) -> None:
        """kill -9, for tests of what survives; only with process=True. The data directory stays if it was given."""
        if self._process is None:
            raise RuntimeError("only a broker in a process of its own can be killed: Broker(process=True)")
        self._process.kill()
        self._process.wait()
        self._end_process()
        self._clean_up()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self._prepare()
        self._own_loop = asyncio.get_running_loop()
        try:
            self._node = self._make_node()
            await self._node.start()
        except BaseException:
            self._clean_up()
            raise
        self._addresses = self._node.addresses
        return self

    async def __aexit__(self, *_: object) -> None:
        node = self._node
        try:
            if node is not None:
                await node.stop()
        finally:
            self._clean_up()
        if node is not None:
            node.raise_failure()

    # topics

    def create_topic(
        self, name: str | None = None, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, with a name of its own when none is given, and return the name. It waits for the node's
        answer: on the node's own loop that would be for ever, so there it is `await broker.create_topic_async()`."""
        from tidelog.protocol.errors import ErrorCode
        from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

        if self._own_loop is not None and asyncio._get_running_loop() is self._own_loop:
            raise RuntimeError("on the loop that the broker runs on, use: await broker.create_topic_async(...)")
        name = name or f"topic-{os.getpid()}-{next(_numbers)}"
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()
            ],
        )
        with Wire(self._addresses[0]) as wire:
            answer = wire.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics[0]
        if answer.error_code != ErrorCode.NONE:
            raise RuntimeError(f"topic {name}: {ErrorCode(answer.error_code).name}: {answer.error_message}")
        return name

    async def create_topic_async(
        self, name: str | None = None, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """The same for `async with Broker()`."""
        return await asyncio.to_thread(self.create_topic, name, partitions=partitions, config=config)

    # parts

    def _prepare(self) -> None:
        self._data = self._given_data or tempfile.mkdtemp(prefix="tidelog-")
        logging.getLogger("tidelog").addHandler(self._lines)

    def _clean_up(self) -> None:
        logging.getLogger("tidelog").removeHandler(self._lines)
        self._addresses = []
        self._own_loop = None
        if self._node is not None:
            self._node.ports.release()
            self._node = None
        if self._given_data is None and self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
        self._data = None

    def _make_node(self) -> Node:
        overrides = [f"{key}={value}" for key, value in self._config.items()]
        return Node(
            load(None, {}, [f"log.dirs={self.data}", *overrides]), os_ports(durable=self._given_data is not None)
        )

    def _start_process(self) -> None:
        command = [sys.executable, "-m", "tidelog", "serve", "--data", self.data]
        for key, value in self._config.items():
            command += ["--override", f"{key}={value}"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.lines.append(line.rstrip("\n"))
            if line.startswith("tidelog is ready on "):
                self._addresses = line.split(" ")[4].rstrip(",;").split(",")
                self._reader = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
                self._reader.start()
                return
        raise RuntimeError(f"the broker did not start:\n{self.log}")

    def _end_process(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        if self._reader is not None:
            self._reader.join(timeout=10)
            self._reader = None
        self._process.stdout.close()
        self._process = None

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.lines.append(line.rstrip("\n"))


class _ThreadRunner:
    """A loop in a daemon thread; `run` hands it a coroutine and waits."""

    def __init__(self) -> None:
        from tidelog.runtime.loop import new_event_loop

        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="tidelog-broker", daemon=True)
        self._thread.start()

    def run(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout=60)  # type: ignore[arg-type]

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=30)
        self.loop.close()
