"""`tidelog group reset`: move what a group has committed, first as a plan, with --execute for good."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.cli.common import (
    CommandError,
    Parser,
    UsageError,
    add_json,
    add_names,
    ask,
    names_of,
    print_json,
    print_table,
    report,
)

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.metadata import TopicPartition
    from tidelog.client.resetting import Move, Target

_IDLE_STATES = ("Empty", "Dead")
GivenOffsets = dict[str | None, "dict[TopicPartition, int]"]
"""Offsets of a file by group; None where its lines name no group."""


def add_reset(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser(
        "reset",
        help="move what a group has committed",
        description="Show where a group would go on; --execute commits it. The group must have no active members.",
    )
    add_names(parser, "group", "GROUP", "the groups")
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC[:P,P]", help="may be repeated")
    parser.add_argument("--all-topics", action="store_true", help="all topics that the group has committed offsets of")
    _add_targets(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only show the plan (the default)")
    how.add_argument("--execute", action="store_true", help="commit the new offsets")
    how.add_argument("--export", action="store_true", help="write the plan as CSV, which --from-file reads")
    add_json(parser)
    parser.set_defaults(run=_run)


def _add_targets(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the first record")
    where.add_argument("--to-latest", action="store_true", help="behind the last record")
    where.add_argument("--to-current", action="store_true", help="to where it is (to commit or export it anew)")
    where.add_argument("--to-offset", type=int, metavar="N", help="to an offset")
    where.add_argument("--shift-by", type=int, metavar="N", help="so many records on, or back if negative")
    where.add_argument("--to-datetime", metavar="TIME", help="to the first record of that time or later (UTC)")
    where.add_argument("--by-duration", metavar="DURATION", help="so long back from now, as PT1H30M or 1h30m")
    where.add_argument(
        "--from-file", metavar="FILE", help="to the offsets of a CSV file: [group,]topic,partition,offset"
    )


def _run(args: argparse.Namespace) -> int:
    if args.from_file is None and bool(args.topic) == args.all_topics:
        raise UsageError("say which topics: --topic TOPIC (may be repeated), or --all-topics")
    return ask(args, lambda cluster: _reset(cluster, args))


async def _reset(cluster: Cluster, args: argparse.Namespace) -> int:
    groups = names_of(args, "group")
    given = _read_file(args.from_file) if args.from_file is not None else {}
    plans: dict[str, list[Move]] = {}
    code = 0
    for group in groups:
        if await _is_busy(cluster, group, args.execute):
            code = 1
            continue
        plans[group] = await _plan(cluster, group, args, given)
    if args.export:
        _export(plans, with_group=len(groups) > 1)
        return code
    if not plans:
        return code
    _show(plans, args)
    if not args.execute:
        if not args.json:
            print("nothing was changed; --execute does it", file=sys.stderr)
        return code
    for group, moves in plans.items():
        code = max(code, await _commit(cluster, group, moves))
    return code


async def _is_busy(cluster: Cluster, group: str, execute: bool) -> bool:
    """An active group refuses: its members would overwrite the offsets with their own."""
    from tidelog.client.errors import BrokerError, ClientError
    from tidelog.client.groups import describe_groups
    from tidelog.protocol.errors import ErrorCode

    found = (await describe_groups(cluster, [group]))[group]
    if isinstance(found, BrokerError) and found.code == ErrorCode.GROUP_ID_NOT_FOUND:
        if not execute:
            print(f"tidelog: there is no group {group}; --execute would make it", file=sys.stderr)
        return False
    if isinstance(found, ClientError):
        raise found
    if found.state in _IDLE_STATES:
        return False
    count = f"{len(found.members)} active member{'' if len(found.members) == 1 else 's'}"
    print(f"tidelog: group {group} has {count} (state {found.state}); stop all before the reset", file=sys.stderr)
    return True


async def _plan(cluster: Cluster, group: str, args: argparse.Namespace, given: GivenOffsets) -> list[Move]:
    from tidelog.cli.partitions import resolve
    from tidelog.client.group_offsets import fetch_offsets
    from tidelog.client.resetting import ToGiven, plan_reset

    committed = await fetch_offsets(cluster, group)
    if args.from_file is not None:
        offsets = {**given.get(None, {}), **given.get(group, {})}
        if not offsets:
            raise CommandError(f"{args.from_file} has no offsets of group {group}")
        return await plan_reset(cluster, ToGiven(offsets), offsets, committed)
    if args.all_topics:
        if not committed:
            raise CommandError(f"group {group} has committed nothing; name its topics with --topic")
        # All partitions of a topic, also those that were added since.
        parts = await resolve(cluster, sorted({at.topic for at in committed}))
    else:
        parts = await resolve(cluster, args.topic)
    return await plan_reset(cluster, _target(cluster, args), parts, committed)


def _target(cluster: Cluster, args: argparse.Namespace) -> Target:
    from tidelog.cli.times import parse_duration, parse_time
    from tidelog.client.resetting import ShiftBy, ToCurrent, ToEarliest, ToLatest, ToOffset, ToTime

    if args.to_earliest:
        return ToEarliest()
    if args.to_latest:
        return ToLatest()
    if args.to_current:
        return ToCurrent()
    if args.to_offset is not None:
        return ToOffset(args.to_offset)
    if args.shift_by is not None:
        return ShiftBy(args.shift_by)
    if args.to_datetime is not None:
        return ToTime(parse_time(args.to_datetime))
    # Not below 0: small negative numbers mean earliest, latest and more to a broker.
    return ToTime(max(0, cluster.clock.wall_ms() - parse_duration(args.by_duration)))


async def _commit(cluster: Cluster, group: str, moves: list[Move]) -> int:
    from tidelog.client.group_offsets import Committed, commit_offsets

    results = await commit_offsets(cluster, group, {move.at: Committed(move.new) for move in moves})
    return report({f"{group} {at}": result for at, result in results.items()})


def _show(plans: dict[str, list[Move]], args: argparse.Namespace) -> None:
    for moves in plans.values():
        for move in moves:
            if move.warning is not None:
                print(f"tidelog: {move.at}: {move.warning}", file=sys.stderr)
    rows = [(group, *move.at, move.new, move.current) for group, moves in plans.items() for move in moves]
    if args.json:
        names = ("group", "topic", "partition", "new_offset", "current_offset")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "CURRENT-OFFSET"), rows)


# CSV as kafka-consumer-groups writes and reads it


def _export(plans: dict[str, list[Move]], *, with_group: bool) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for group, moves in plans.items():
        for move in moves:
            row = (move.at.topic, move.at.partition, move.new)
            writer.writerow((group, *row) if with_group else row)


def _read_file(path: str) -> GivenOffsets:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return read_csv(csv.reader(file), path)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not text") from None


def read_csv(rows: Iterable[list[str]], path: str) -> GivenOffsets:
    from tidelog.client.metadata import TopicPartition

    given: GivenOffsets = {}
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        try:
            *group, topic, partition, offset = (field.strip() for field in row)
            if len(group) > 1:
                raise ValueError
            at = TopicPartition(topic, int(partition))
            given.setdefault(group[0] if group else None, {})[at] = int(offset)
        except ValueError:
            text = ",".join(row)
            raise CommandError(f"{path}, line {number}: {text!r} is not [group,]topic,partition,offset") from None
    return given
