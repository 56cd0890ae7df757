"""`tidelog serve`: run a node until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from typing import ClassVar

_STARTED_S = time.monotonic()


class OneLine(logging.Formatter):
    """Control characters are shown, not sent: the name of a group must not write a line of its own, or colour ours."""

    _SHOWN: ClassVar[dict[int, str]] = {
        code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160), 0x2028, 0x2029)
    }

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(self._SHOWN)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "serve",
        help="run a node",
        description="Run a node until SIGTERM or Ctrl-C. Settings come from the file, then from KAFKA_... environment "
        "variables, then from the options; the later one wins. A new data directory is formatted by itself.",
    )
    parser.add_argument("properties", nargs="?", metavar="server.properties", help="a file with Kafka's settings")
    parser.add_argument("--data", metavar="DIR", help="the data directory (log.dirs)")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="the address to serve (listeners); port 0 takes a free one"
    )
    parser.add_argument(
        "--override", metavar="KEY=VALUE", action="append", default=[], help="any setting; may be given several times"
    )
    parser.add_argument("--verbose", action="store_true", help="log what the node does, not only what goes wrong")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tidelog.metadata.config import ConfigError

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if args.verbose else logging.WARNING, handlers=[handler])
    overrides = [f"log.dirs={args.data}"] if args.data else []
    if args.listen:
        host, colon, port = args.listen.rpartition(":")
        if not colon or not port.isdecimal():
            print(f"tidelog serve: --listen {args.listen}: expected HOST:PORT, such as 127.0.0.1:9092", file=sys.stderr)
            return 2
        overrides.append(f"listeners=PLAINTEXT://{host}:{port}")
    from tidelog.node.config import load

    try:
        config = load(args.properties, os.environ, overrides + args.override)
    except ConfigError as error:
        print(f"tidelog serve: {error}", file=sys.stderr)
        return 2
    for warning in config.warnings:
        print(f"tidelog serve: warning: {warning}", file=sys.stderr)
    from tidelog.kernel.errors import TidelogError
    from tidelog.runtime.loop import run as run_loop

    try:
        return run_loop(_serve(config, ",".join(map(os.path.abspath, config.log_dirs))))
    except TidelogError as error:
        print(f"tidelog serve: {error}", file=sys.stderr)
        return 1


async def _serve(config: object, directory: str) -> int:
    from tidelog.kernel.errors import TidelogError
    from tidelog.node.config import NodeConfig
    from tidelog.node.http import HttpListener
    from tidelog.node.node import Node
    from tidelog.node.ports import os_ports
    from tidelog.runtime.descriptors import raise_descriptors_max
    from tidelog.runtime.garbage import settle

    assert isinstance(config, NodeConfig)
    raise_descriptors_max()
    node = Node(config, os_ports())
    asyncio.get_running_loop().set_exception_handler(node.on_loop_error)
    stop = asyncio.Event()
    _stop_on_signals(stop)
    await node.start()
    try:
        http = await HttpListener.open(node)
    except TidelogError:
        await node.stop()
        raise
    extra = f"; metrics on http://{http.address}/metrics" if http is not None else ""
    took_ms = (time.monotonic() - _STARTED_S) * 1000
    print(
        f"tidelog is ready on {','.join(node.addresses)}, data in {directory}, after {took_ms:.0f} ms{extra}",
        flush=True,
    )
    settle()
    waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(node.wait())]
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if http is not None:
        http.close()
    await node.stop()
    failed = waiting[1] in done and waiting[1].exception() is not None
    return 1 if failed else 0


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(name, stop.set)
        except NotImplementedError:  # Windows
            signal.signal(name, lambda *_: loop.call_soon_threadsafe(stop.set))
