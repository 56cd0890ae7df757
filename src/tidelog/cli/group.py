"""`tidelog group`: list, describe, delete. (`reset` has a file of its own.)"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.cli import group_reset
from tidelog.cli.common import (
    CommandError,
    Parser,
    add_json,
    add_names,
    names_of,
    print_json,
    print_table,
    report,
)
from tidelog.cli.verbs import add_states, add_verbs, asks, report_missing, states_of

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.groups import GroupDescription, GroupMember
    from tidelog.client.lag import Lag
    from tidelog.client.metadata import TopicPartition


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    add_verbs(
        commands,
        "group",
        "list, describe, reset and delete consumer groups",
        _add_list,
        _add_describe,
        _add_delete,
        group_reset.add_reset,
    )


# list


def _add_list(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("list", help="list groups")
    add_states(parser, "Stable or Empty")
    parser.add_argument("-l", "--long", action="store_true", help="with type, protocol and state")
    add_json(parser)
    asks(parser, _list)


async def _list(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.groups import list_groups

    states = states_of(args)
    groups = await list_groups(cluster, states)
    if args.json:
        print_json(
            [
                {"group": one.group_id, "type": one.type, "protocol": one.protocol_type, "state": one.state}
                for one in groups
            ]
        )
    elif args.long or states:
        rows = [(one.group_id, one.type.capitalize(), one.protocol_type, one.state) for one in groups]
        print_table(("GROUP", "TYPE", "PROTOCOL", "STATE"), rows)
    else:
        for one in groups:
            print(one.group_id)
    return 0


# describe


def _add_describe(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser(
        "describe",
        help="show offsets and lag, members or state of groups",
        description="Show what groups have committed and how far they are behind: in records, and in seconds by the "
        "age of the first record that is not committed.",
    )
    add_names(parser, "group", "GROUP", "the groups; all when none is given")
    parser.add_argument("--all-groups", action="store_true", help=argparse.SUPPRESS)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--offsets", action="store_true", help="offsets and lag of each partition (the default)")
    kind.add_argument("--members", action="store_true", help="the members and what they are assigned")
    kind.add_argument("--state", action="store_true", help="state, coordinator and assignor")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --members: the partitions of each")
    add_json(parser)
    asks(parser, _describe)


async def _describe(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.errors import ClientError
    from tidelog.client.groups import describe_groups, list_groups

    names = list(dict.fromkeys([*args.names, *args.more_names]))
    if not names:
        names = [one.group_id for one in await list_groups(cluster)]
    described = await describe_groups(cluster, names)
    groups = [found for found in (described[name] for name in names) if not isinstance(found, ClientError)]
    shown: list[Any] = []
    for group in groups:
        if args.members:
            shown.append(_show_members(group, args))
        elif args.state:
            shown.append(_show_state(cluster, group, args))
        else:
            shown.append(await _show_offsets(cluster, group, args))
    if args.json:
        print_json(shown)
    return report_missing(described, "group", "groups")


async def _show_offsets(cluster: Cluster, group: GroupDescription, args: argparse.Namespace) -> Any:
    from tidelog.client.group_offsets import fetch_offsets
    from tidelog.client.lag import group_lag

    owners = {at: member for member in group.members for at in member.assignment}
    lags = await group_lag(cluster, await fetch_offsets(cluster, group.group_id), owners)
    if args.json:
        return {
            "group": group.group_id,
            "state": group.state,
            "partitions": [_lag_as_json(at, lag, owners.get(at)) for at, lag in lags.items()],
        }
    if not group.members:
        print(f"\nConsumer group '{group.group_id}' has no active members.\n", file=sys.stderr)
    elif not lags:
        print(f"\nConsumer group '{group.group_id}' has committed nothing.\n", file=sys.stderr)
    if lags:
        print_table(_OFFSET_COLUMNS, [_offset_row(group, at, lag, owners.get(at)) for at, lag in lags.items()])
    return None


# The first nine are read by scripts that were made for Apache's tool; ours comes behind them.
_OFFSET_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
    "LAG-SECONDS",
)


def _offset_row(group: GroupDescription, at: TopicPartition, lag: Lag, owner: GroupMember | None) -> tuple[object, ...]:
    seconds = None if lag.seconds is None else f"{lag.seconds:.1f}" if lag.seconds else "0"
    who = (owner.member_id, owner.host, owner.client_id) if owner is not None else (None, None, None)
    return (group.group_id, at.topic, at.partition, lag.committed, lag.end, lag.records, *who, seconds)


def _lag_as_json(at: TopicPartition, lag: Lag, owner: GroupMember | None) -> dict[str, Any]:
    return {
        "topic": at.topic,
        "partition": at.partition,
        "current_offset": lag.committed,
        "log_end_offset": lag.end,
        "lag": lag.records,
        "lag_seconds": lag.seconds,
        "consumer_id": owner.member_id if owner is not None else None,
        "host": owner.host if owner is not None else None,
        "client_id": owner.client_id if owner is not None else None,
    }


def _show_members(group: GroupDescription, args: argparse.Namespace) -> Any:
    if args.json:
        return {
            "group": group.group_id,
            "members": [
                {
                    "consumer_id": member.member_id,
                    "instance_id": member.instance_id,
                    "host": member.host,
                    "client_id": member.client_id,
                    "assignment": _as_json(member.assignment),
                    **(_new_as_json(member) if member.epoch is not None else {}),
                }
                for member in group.members
            ],
        }
    if not group.members:
        print(f"\nConsumer group '{group.group_id}' has no active members.\n", file=sys.stderr)
        return None
    columns = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows: list[list[object]] = [
        [group.group_id, member.member_id, member.host, member.client_id, len(member.assignment)]
        for member in group.members
    ]
    is_new = group.epoch is not None
    if is_new:
        columns += ["EPOCH", "PROTOCOL"]
        for row, member in zip(rows, group.members, strict=True):
            row += [member.epoch, "classic" if member.is_classic else "consumer"]
    if args.verbose:
        columns += ["ASSIGNMENT", "TARGET-ASSIGNMENT"] if is_new else ["ASSIGNMENT"]
        for row, member in zip(rows, group.members, strict=True):
            row += [_assignment(member.assignment), *([_assignment(member.target or ())] if is_new else [])]
    print_table(columns, rows)
    return None


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    from tidelog.client.consumer_protocol import by_topic

    return " ".join(f"{topic}:{','.join(map(str, parts))}" for topic, parts in by_topic(partitions).items())


def _as_json(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": at.topic, "partition": at.partition} for at in partitions]


def _new_as_json(member: GroupMember) -> dict[str, Any]:
    """What only the new protocol has."""
    return {
        "epoch": member.epoch,
        "target_assignment": _as_json(member.target or ()),
        "protocol": "classic" if member.is_classic else "consumer",
    }


def _show_state(cluster: Cluster, group: GroupDescription, args: argparse.Namespace) -> Any:
    if args.json:
        return {
            "group": group.group_id,
            "type": group.type,
            "state": group.state,
            "coordinator": group.coordinator,
            "assignor": group.assignor,
            "members": len(group.members),
            **({} if group.epoch is None else {"epoch": group.epoch, "target_epoch": group.target_epoch}),
        }
    broker = cluster.metadata.brokers.get(group.coordinator)
    coordinator = f"{broker} ({group.coordinator})" if broker is not None else str(group.coordinator)
    columns: tuple[str, ...] = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS", "TYPE")
    row: tuple[object, ...] = (group.group_id, coordinator, group.assignor, group.state, len(group.members), group.type)
    if group.epoch is not None:
        columns += ("EPOCH", "TARGET-EPOCH")
        row += (group.epoch, group.target_epoch)
    print_table(columns, [row])
    return None


# delete


def _add_delete(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("delete", help="delete groups, or a group's offsets of some topics")
    add_names(parser, "group", "GROUP", "the groups; they must have no active members")
    parser.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:P,P]",
        help="delete only the offsets of this topic, and keep the group; may be repeated",
    )
    asks(parser, _delete)


async def _delete(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.groups import delete_groups

    names = names_of(args, "group")
    if not args.topic:
        return report(await delete_groups(cluster, names), lambda name: f"deleted group {name}")
    codes = [await _delete_offsets(cluster, name, args.topic) for name in names]
    return max(codes)


async def _delete_offsets(cluster: Cluster, group: str, specs: list[str]) -> int:
    from tidelog.cli.partitions import parse_spec
    from tidelog.client.group_offsets import delete_offsets, fetch_offsets

    committed = await fetch_offsets(cluster, group)
    wanted = []
    for topic, numbers in map(parse_spec, specs):
        found = [at for at in committed if at.topic == topic and (numbers is None or at.partition in numbers)]
        if not found:
            raise CommandError(f"group {group} has committed nothing for {topic}; `tidelog group describe` shows what")
        wanted += found
    results = await delete_offsets(cluster, group, wanted)
    return report(results, lambda at: f"deleted the offset of {at} in group {group}")
