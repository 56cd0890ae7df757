"""`tidelog produce`: records from arguments, or from standard input, one a line."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.common import CommandError, UsageError, add_bootstrap, ask, key_value
from tidelog.cli.formats import InputRecord, from_json_line, unescape
from tidelog.kernel.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client.accumulator import RecordMetadata
    from tidelog.client.cluster import Cluster
    from tidelog.client.producer import Producer, ProducerOptions

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_UNSEEN_MAX: Final = 10_000
_CHUNK_BYTES: Final = 64 * 1024


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "produce",
        help="write records",
        description="Write records to a topic: the VALUEs, or else the lines of standard input. Keys are placed as "
        "Java's producer places them (murmur2).",
    )
    parser.add_argument("values", nargs="*", metavar="TOPIC [VALUE...]", help="where to write, and what")
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    source = parser.add_argument_group("records")
    source.add_argument("-k", "--key", metavar="KEY", help="the key of all records")
    source.add_argument(
        "-K", "--key-separator", metavar="TEXT", help="each line is a key, this text and a value (for example : or \\t)"
    )
    source.add_argument(
        "-H",
        "--header",
        type=key_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of all records; may be repeated",
    )
    source.add_argument("--json", action="store_true", help="each line is JSON, as `tidelog consume --json` writes it")
    source.add_argument(
        "--keep-partitions", action="store_true", help="with --json: to the partition that a line names"
    )
    source.add_argument("--null", metavar="TEXT", help="a value of this text is a null value (a tombstone)")
    source.add_argument("--tombstone", action="store_true", help="write one record without a value; needs --key")
    source.add_argument("--timestamp", metavar="TIME", help="the time of all records (default: now)")
    source.add_argument("-p", "--partition", type=int, metavar="N", help="the partition of all records")
    source.add_argument("-f", "--file", metavar="FILE", help="read lines from a file instead of standard input")
    sending = parser.add_argument_group("sending")
    sending.add_argument("-z", "--compression", choices=CODECS, default="none", help="default: none")
    sending.add_argument("--compression-codec", dest="compression", choices=CODECS, help=argparse.SUPPRESS)
    sending.add_argument("--acks", choices=("0", "1", "all", "-1"), default="all", help="default: all")
    sending.add_argument("--request-required-acks", dest="acks", help=argparse.SUPPRESS)
    sending.add_argument("--idempotent", action="store_true", help="no duplicates when a send is retried")
    sending.add_argument(
        "--linger-ms", type=float, default=5.0, metavar="MS", help="wait for more records (default: 5)"
    )
    sending.add_argument("-v", "--verbose", action="store_true", help="print where each record went")
    sending.add_argument("-q", "--quiet", action="store_true", help="no summary at the end")
    add_bootstrap(parser)
    parser.set_defaults(run=run, words="values")


def run(args: argparse.Namespace) -> int:
    if args.topic is None:
        if not args.values:
            raise UsageError("name the topic to write to")
        args.topic = args.values.pop(0)
    if args.tombstone and args.key is None:
        raise UsageError("--tombstone needs --key: a record without a value deletes its key")
    if args.tombstone and args.values:
        raise UsageError("--tombstone writes a record without a value; leave the values out")
    return ask(args, lambda cluster: _produce(cluster, args))


def _options(args: argparse.Namespace) -> ProducerOptions:
    from tidelog.client.producer import ProducerOptions
    from tidelog.protocol.compression import CODEC_NAMES, Codec

    return ProducerOptions(
        acks=-1 if args.acks == "all" else int(args.acks),
        compression=Codec(CODEC_NAMES[args.compression]),
        idempotence=args.idempotent,
        linger_ms=args.linger_ms,
    )


async def _produce(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.producer import Producer

    tally = _Tally(args.verbose)
    await cluster.topic(args.topic, auto_create=True)
    problem: TidelogError | None = None
    async with Producer(cluster, _options(args)) as producer:
        try:
            async for record in _records(args):
                tally.add(await _send(producer, args.topic, record))
                await tally.look()
        except TidelogError as error:
            problem = error  # what came before it is written all the same
        await producer.flush()
        await tally.finish()
    if not args.quiet:
        print(tally.summary(args.topic), file=sys.stderr)
    if problem is not None:
        raise problem
    return 1 if tally.failed else 0


async def _send(producer: Producer, topic: str, record: InputRecord) -> asyncio.Future[RecordMetadata]:
    return await producer.send(
        topic,
        record.value,
        record.key,
        headers=record.headers,
        partition=record.partition,
        timestamp=record.timestamp,
    )


class _Tally:
    """Counts what became of the records, in order, without keeping them all."""

    def __init__(self, verbose: bool) -> None:
        self.sent = 0
        self.failed = 0
        self._verbose = verbose
        self._waiting: list[asyncio.Future[RecordMetadata]] = []

    def add(self, future: asyncio.Future[RecordMetadata]) -> None:
        self._waiting.append(future)

    async def look(self) -> None:
        if len(self._waiting) >= _UNSEEN_MAX or (self._waiting and self._waiting[0].done()):
            await self._collect(len(self._waiting) >= _UNSEEN_MAX)

    async def finish(self) -> None:
        await self._collect(True)

    async def _collect(self, wait: bool) -> None:
        done = 0
        for future in self._waiting:
            if not wait and not future.done():
                break
            done += 1
            try:
                placed = await future
            except TidelogError as error:
                self.failed += 1
                if self.failed == 1:
                    print(f"tidelog: a record was not written: {error}", file=sys.stderr)
            else:
                self.sent += 1
                if self._verbose:
                    print(f"{placed.topic}\tPartition:{placed.partition}\tOffset:{placed.offset}", flush=True)
        del self._waiting[:done]

    def summary(self, topic: str) -> str:
        text = f"wrote {self.sent} record{'' if self.sent == 1 else 's'} to {topic}"
        return f"{text}, {self.failed} failed" if self.failed else text


# Where records come from


async def _records(args: argparse.Namespace) -> AsyncIterator[InputRecord]:
    from tidelog.cli.times import parse_time

    timestamp = None if args.timestamp is None else parse_time(args.timestamp)
    if args.tombstone:
        yield _complete(args, InputRecord(None, None), timestamp)
        return
    parse = _line_parser(args)
    if args.values:
        for number, value in enumerate(args.values, 1):
            yield _complete(args, parse(value.encode(errors="surrogateescape"), number), timestamp)
        return
    async for number, line in _lines(args.file):
        yield _complete(args, parse(line, number), timestamp)


def _line_parser(args: argparse.Namespace) -> Callable[[bytes, int], InputRecord]:
    null = None if args.null is None else args.null.encode()
    separator = None if args.key_separator is None else unescape(args.key_separator)
    if separator == b"":
        raise UsageError("--key-separator is empty")

    def parse(line: bytes, number: int) -> InputRecord:
        if args.json:
            record = from_json_line(line, number)
            return record if args.keep_partitions else record._replace(partition=None)
        key: bytes | None = None
        value: bytes | None = line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                raise CommandError(f"line {number} has no {args.key_separator!r} between a key and a value")
        return InputRecord(key, None if value == null else value)

    return parse


def _complete(args: argparse.Namespace, record: InputRecord, timestamp: int | None) -> InputRecord:
    """What the options say of all records, laid over what a line says of one."""
    key = record.key if args.key is None or record.key is not None else args.key.encode()
    headers = tuple((name, value.encode()) for name, value in args.header)
    return InputRecord(
        key=key,
        value=record.value,
        headers=record.headers + headers,
        partition=record.partition if args.partition is None else args.partition,
        timestamp=record.timestamp if timestamp is None else timestamp,
    )


async def _lines(path: str | None) -> AsyncIterator[tuple[int, bytes]]:
    """Lines of a file or of standard input, whole ones as they come."""
    try:
        descriptor = sys.stdin.fileno() if path is None else os.open(path, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    if path is None and sys.stdin.isatty():
        print("one record a line; Ctrl-D ends", file=sys.stderr)
    number = 0
    rest = b""
    async for chunk in _chunks(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            yield number, line.removesuffix(b"\r")
    if rest:
        yield number + 1, rest.removesuffix(b"\r")


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Read in a daemon thread: a person may take a while to type, and Ctrl-C must not wait for the next line."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(4)

    def read() -> None:
        with suppress(RuntimeError):  # the loop is gone: nobody wants more
            while True:
                chunk = os.read(descriptor, _CHUNK_BYTES)
                room.acquire()
                # Not a coroutine: on a loop that has just closed it would be left behind, never awaited.
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
                if not chunk:
                    return

    threading.Thread(target=read, name="tidelog-input", daemon=True).start()
    while chunk := await queue.get():
        room.release()
        yield chunk
