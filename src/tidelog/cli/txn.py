"""`tidelog txn`: list, describe, abort."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tidelog.cli.common import (
    CommandError,
    Parser,
    UsageError,
    add_json,
    add_names,
    names_of,
    print_json,
    print_table,
)
from tidelog.cli.verbs import add_states, add_verbs, asks, report_missing, states_of

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition
    from tidelog.client.transactions import ActiveProducer, TransactionDescription


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    add_verbs(commands, "txn", "list, describe and abort transactions", _add_list, _add_describe, _add_abort)


# list


def _add_list(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("list", help="list transactional ids and their states")
    add_states(parser, "Ongoing or CompleteCommit")
    parser.add_argument("--producer-id", action="append", default=[], type=int, help="only of this producer id")
    parser.add_argument(
        "--longer-than",
        "--duration-filter",
        dest="duration_ms",
        type=int,
        default=-1,
        metavar="MS",
        help="only those whose transaction began longer ago than this",
    )
    parser.add_argument(
        "--pattern",
        "--transactional-id-pattern",
        dest="pattern",
        metavar="REGEX",
        help="only ids that this regular expression (RE2) describes as a whole",
    )
    add_json(parser)
    asks(parser, _list)


async def _list(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.transactions import list_transactions

    states = states_of(args)
    found = await list_transactions(cluster, states, args.producer_id, args.duration_ms, args.pattern)
    if args.json:
        print_json(
            [
                {
                    "transactional_id": one.transactional_id,
                    "coordinator": one.coordinator,
                    "producer_id": one.producer_id,
                    "state": one.state,
                }
                for one in found
            ]
        )
    else:
        print_table(("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"), found)
    return 0


# describe


def _add_describe(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("describe", help="show the state, the producer and the partitions of transactional ids")
    add_names(parser, "transactional-id", "ID", "the transactional ids")
    add_json(parser)
    asks(parser, _describe)


_COLUMNS = (
    "TRANSACTIONAL-ID",
    "COORDINATOR",
    "PRODUCER-ID",
    "EPOCH",
    "STATE",
    "TIMEOUT-MS",
    "STARTED",
    "PARTITIONS",
)


async def _describe(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.errors import ClientError
    from tidelog.client.transactions import describe_transactions

    described = await describe_transactions(cluster, names_of(args, "transactional id"))
    found = [one for one in described.values() if not isinstance(one, ClientError)]
    if args.json:
        print_json([_as_json(one) for one in found])
    elif found:
        print_table(_COLUMNS, [_row(one) for one in found])
    return report_missing(described, "txn", "transactional ids")


def _row(one: TransactionDescription) -> tuple[object, ...]:
    from tidelog.cli.times import format_time

    started = None if one.start_ms < 0 else format_time(one.start_ms)
    partitions = ",".join(f"{at.topic}-{at.partition}" for at in one.partitions)
    producer = (one.producer_id, one.producer_epoch)
    return (one.transactional_id, one.coordinator, *producer, one.state, one.timeout_ms, started, partitions)


def _as_json(one: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "coordinator": one.coordinator,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "timeout_ms": one.timeout_ms,
        "start_ms": None if one.start_ms < 0 else one.start_ms,
        "partitions": [{"topic": at.topic, "partition": at.partition} for at in one.partitions],
    }


# abort


def _add_abort(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser(
        "abort",
        help="end a transaction that hangs in a partition",
        description="Write the marker of an abort to one partition, past the coordinator: for a transaction that holds "
        "readers of committed records back and that no coordinator knows any more. One that is alive is torn by it. "
        "Without --start-offset or --producer-id the open transactions of the partition are shown.",
    )
    parser.add_argument("partition", metavar="TOPIC:PARTITION", help="where it hangs")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--start-offset", type=int, metavar="OFFSET", help="the one whose first record has this offset")
    which.add_argument("--producer-id", type=int, metavar="ID", help="the one of this producer")
    add_json(parser)
    asks(parser, _abort)


async def _abort(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.transactions import NO_OFFSET, abort_transaction, describe_producers

    at = _partition(args.partition)
    producers = await describe_producers(cluster, at)
    open_ones = [one for one in producers if one.transaction_start_offset != NO_OFFSET]
    if args.start_offset is None and args.producer_id is None:
        return _show_open(at, open_ones, args)
    chosen = [
        one
        for one in open_ones
        if args.start_offset in (None, one.transaction_start_offset) and args.producer_id in (None, one.producer_id)
    ]
    if not chosen:
        raise CommandError(
            f"no such transaction is open in {args.partition}; `tidelog txn abort {args.partition}` shows which are"
        )
    await abort_transaction(cluster, at, chosen[0])
    if args.json:
        print_json(_open_as_json(chosen[0]))
    else:
        print(f"aborted the transaction of producer {chosen[0].producer_id} in {args.partition}")
    return 0


def _partition(text: str) -> TopicPartition:
    from tidelog.cli.partitions import parse_spec
    from tidelog.client.metadata import TopicPartition

    topic, indexes = parse_spec(text)
    if indexes is None or len(indexes) != 1:
        raise UsageError(f"{text!r}: name one partition, such as {topic}:0")
    return TopicPartition(topic, indexes[0])


def _show_open(at: TopicPartition, open_ones: list[ActiveProducer], args: argparse.Namespace) -> int:
    if args.json:
        print_json([_open_as_json(one) for one in open_ones])
        return 0
    rows = [
        (one.producer_id, one.producer_epoch, one.coordinator_epoch, one.transaction_start_offset, one.last_sequence)
        for one in open_ones
    ]
    if rows:
        print_table(("PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH", "START-OFFSET", "LAST-SEQUENCE"), rows)
    else:
        print(f"no transaction is open in {at.topic}:{at.partition}", file=sys.stderr)
    return 0


def _open_as_json(one: ActiveProducer) -> dict[str, Any]:
    return {
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "start_offset": one.transaction_start_offset,
        "last_sequence": one.last_sequence,
        "last_timestamp_ms": one.last_timestamp_ms,
    }
