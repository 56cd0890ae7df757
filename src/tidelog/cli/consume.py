"""`tidelog consume`: records to standard output, from the partitions of topics or as a member of a group."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tidelog.cli.common import UsageError, add_bootstrap, ask, key_value, positive
from tidelog.cli.formats import Formatter, Shown, apply_property, compile_format, json_line

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.consumer import Consumer, ConsumerOptions
    from tidelog.client.metadata import TopicPartition


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "consume",
        help="read records",
        description="Print the records of topics as they come. Without --group nothing is remembered and every record "
        "is read; with it the members of the group share the partitions and go on where they stopped.",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="what to read")
    parser.add_argument("--topic", dest="more_topics", action="append", default=[], help=argparse.SUPPRESS)
    _add_place(parser)
    _add_end(parser)
    _add_format(parser)
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed hides what transactions have not committed",
    )
    add_bootstrap(parser)
    parser.set_defaults(run=run, words="topics")


def _add_place(parser: argparse.ArgumentParser) -> None:
    place = parser.add_argument_group("where to begin (default: the end, or where the group stopped)")
    place.add_argument("-g", "--group", metavar="GROUP", help="read as a member of this group")
    place.add_argument("--from-beginning", action="store_true", help="from the oldest record")
    place.add_argument(
        "-o",
        "--offset",
        metavar="WHERE",
        help="earliest, latest, an offset N, -N for the last N records of each partition, or @TIME",
    )
    place.add_argument("--from-time", metavar="TIME", help="from the first record of that time or later")
    place.add_argument("-p", "--partition", metavar="N,N", help="only these partitions")


def _add_end(parser: argparse.ArgumentParser) -> None:
    end = parser.add_argument_group("when to stop (default: Ctrl-C)")
    end.add_argument("-n", "--max-messages", type=positive, metavar="N", help="after so many records")
    end.add_argument("-e", "--exit-at-end", action="store_true", help="at the end that the log has now")
    end.add_argument("--timeout", type=float, metavar="SECONDS", help="when no record came for so long")
    end.add_argument("--timeout-ms", type=float, help=argparse.SUPPRESS)


def _add_format(parser: argparse.ArgumentParser) -> None:
    shape = parser.add_argument_group("what to print (default: the value)")
    shape.add_argument("--json", action="store_true", help="a line of JSON per record, which `produce --json` reads")
    shape.add_argument("-f", "--format", metavar="FORMAT", help=r"such as '%%t %%p %%o %%T %%h %%k: %%s\n'")
    for name in ("key", "headers", "partition", "offset", "timestamp"):
        shape.add_argument(f"--print-{name}", action="store_true", help=argparse.SUPPRESS)
    shape.add_argument(
        "--print",
        metavar="PART,PART",
        help="any of timestamp, partition, offset, headers, key, value, in the format of kafka-console-consumer",
    )
    shape.add_argument("--no-value", action="store_true", help=argparse.SUPPRESS)
    shape.add_argument(
        "--formatter-property",
        "--property",
        dest="properties",
        type=key_value,
        action="append",
        default=[],
        help=argparse.SUPPRESS,
    )
    shape.add_argument("-q", "--quiet", action="store_true", help="no summary at the end")


def run(args: argparse.Namespace) -> int:
    args.topics = [*args.topics, *args.more_topics]
    if not args.topics:
        raise UsageError("name at least one topic to read")
    places = [name for name in ("from_beginning", "offset", "from_time") if getattr(args, name)]
    if len(places) > 1:
        raise UsageError("give only one of --from-beginning, --offset and --from-time")
    if args.group is not None and (args.offset or args.from_time or args.partition):
        raise UsageError(
            "a group goes on where it stopped: leave out --offset, --from-time and --partition, "
            "or move it with `tidelog group reset`"
        )
    formatter = make_formatter(args)
    return ask(args, lambda cluster: _consume(cluster, args, formatter))


PARTS = ("timestamp", "partition", "offset", "headers", "key", "value")


def make_formatter(args: argparse.Namespace) -> Formatter:
    if args.json and args.format:
        raise UsageError("give only one of --json and --format")
    if args.json:
        return json_line
    if args.format is not None:
        return compile_format(args.format)
    fields: dict[str, Any] = {name: getattr(args, f"print_{name}") for name in PARTS[:-1]}
    fields["value"] = not args.no_value
    if args.print is not None:
        wanted = args.print.split(",")
        if unknown := [part for part in wanted if part not in PARTS]:
            raise UsageError(f"--print {unknown[0]}: known are {', '.join(PARTS)}")
        fields = {name: name in wanted for name in PARTS}
    for name, value in args.properties:
        apply_property(fields, name, value)
    return Shown(**fields)


_LOOK_S = 0.2


async def _consume(cluster: Cluster, args: argparse.Namespace, formatter: Formatter) -> int:
    from tidelog.client.consumer import Consumer

    for name in args.topics:
        await cluster.topic(name)
    async with Consumer(cluster, _options(args)) as consumer:
        ends = await _begin(cluster, consumer, args)
        # What was aborted moves the position to the end, and no record tells of it.
        step_s = _patience_s(args) if ends is None else min(_patience_s(args), _LOOK_S)
        count, waited_s = 0, 0.0
        try:
            while not _is_done(consumer, args, count, ends):
                most = 10_000 if args.max_messages is None else args.max_messages - count
                records = await consumer.poll(step_s, max_records=most)
                waited_s = 0.0 if records else waited_s + step_s
                if _gives_up(args) and waited_s >= _patience_s(args):
                    break
                for record in records:
                    sys.stdout.buffer.write(formatter(record))
                count += len(records)
                sys.stdout.buffer.flush()
        finally:
            if not args.quiet:
                print(f"Processed a total of {count} messages", file=sys.stderr)
    return 0


def _options(args: argparse.Namespace) -> ConsumerOptions:
    from tidelog.client.consumer import ConsumerOptions
    from tidelog.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, FetchLimits

    level = READ_COMMITTED if args.isolation_level == "read_committed" else READ_UNCOMMITTED
    return ConsumerOptions(
        group_id=args.group,
        offset_reset="earliest" if args.from_beginning else "latest",
        limits=FetchLimits(isolation_level=level),
    )


def _patience_s(args: argparse.Namespace) -> float:
    if args.timeout is not None:
        return float(args.timeout)
    return 60.0 if args.timeout_ms is None else float(args.timeout_ms) / 1000


def _gives_up(args: argparse.Namespace) -> bool:
    return args.timeout is not None or args.timeout_ms is not None


def _is_done(consumer: Consumer, args: argparse.Namespace, count: int, ends: dict[TopicPartition, int] | None) -> bool:
    if args.max_messages is not None and count >= args.max_messages:
        return True
    if ends is None:
        return False
    mine = consumer.assignment
    if not mine:
        return not ends if args.group is None else False
    return all(consumer.position(at) >= ends.get(at, 0) for at in mine)


async def _begin(cluster: Cluster, consumer: Consumer, args: argparse.Namespace) -> dict[TopicPartition, int] | None:
    """Start reading; the offsets at which to stop, if the end is where to stop."""
    from tidelog.cli.partitions import parse_numbers, resolve
    from tidelog.client.offsets import LATEST, list_offsets

    specs = args.topics
    if args.partition is not None:
        numbers = parse_numbers(args.partition, f"--partition {args.partition}: expected numbers with commas")
        specs = [f"{topic}:{','.join(map(str, numbers))}" for topic in args.topics]
    parts = await resolve(cluster, specs)
    ends = None
    if args.exit_at_end:
        level = 1 if args.isolation_level == "read_committed" else 0
        found = await list_offsets(cluster, dict.fromkeys(parts, LATEST), isolation_level=level)
        ends = {at: result.offset for at, result in found.items()}
    if args.group is not None:
        await consumer.subscribe(args.topics)
    else:
        await consumer.assign(await _places(cluster, parts, args))
    return ends


async def _places(cluster: Cluster, parts: list[TopicPartition], args: argparse.Namespace) -> dict[TopicPartition, int]:
    from tidelog.cli.times import parse_time
    from tidelog.client.offsets import EARLIEST, LATEST, list_offsets

    where = "earliest" if args.from_beginning else (args.offset or "latest")
    if args.from_time is not None:
        where = f"@{args.from_time}"
    if where in ("earliest", "beginning"):
        return dict.fromkeys(parts, EARLIEST)
    if where in ("latest", "end"):
        return dict.fromkeys(parts, LATEST)
    if where.startswith(("@", "s@")):
        found = await list_offsets(cluster, dict.fromkeys(parts, parse_time(where.partition("@")[2])))
        return {at: result.offset if result.offset >= 0 else LATEST for at, result in found.items()}
    try:
        number = int(where)
    except ValueError:
        raise UsageError(f"--offset {where}: expected earliest, latest, N, -N or @TIME") from None
    if number >= 0:
        return dict.fromkeys(parts, number)
    starts = await list_offsets(cluster, dict.fromkeys(parts, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(parts, LATEST))
    return {at: max(starts[at].offset, ends[at].offset + number) for at in parts}
