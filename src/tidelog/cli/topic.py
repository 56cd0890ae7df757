"""`tidelog topic`: create, list, describe, alter, delete, grow, trim."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Any

from tidelog.cli.common import (
    CommandError,
    Parser,
    UsageError,
    add_json,
    add_names,
    ask,
    key_value,
    names_of,
    positive,
    print_json,
    print_table,
    report,
)
from tidelog.cli.verbs import add_verbs, asks

if TYPE_CHECKING:
    from tidelog.cli.cleaning import Cleaning
    from tidelog.client.cluster import Cluster
    from tidelog.client.configs import ConfigEntry
    from tidelog.client.metadata import TopicInfo, TopicPartition


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    add_verbs(
        commands,
        "topic",
        "create, list, describe, change and delete topics",
        _add_create,
        _add_list,
        _add_describe,
        _add_alter,
        _add_delete,
        _add_grow,
        _add_trim,
    )


# create


def _add_create(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("create", help="create topics")
    add_names(parser, "topic", "TOPIC", "the names")
    parser.add_argument("-p", "--partitions", type=positive, default=-1, metavar="N", help="default: num.partitions")
    parser.add_argument(
        "-r", "--replication-factor", type=positive, default=-1, metavar="N", help="default: what the broker says"
    )
    parser.add_argument(
        "-c", "--config", type=key_value, action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    parser.add_argument(
        "--replica-assignment", metavar="1:2,2:3", help="brokers of each partition, instead of the two numbers"
    )
    parser.add_argument("--if-not-exists", action="store_true", help="no error for a topic that exists")
    parser.add_argument("--dry-run", action="store_true", help="have the broker check the request, create nothing")
    add_json(parser)
    asks(parser, _create)


async def _create(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.errors import BrokerError
    from tidelog.client.topics import CreatedTopic, NewTopic, create_topics
    from tidelog.protocol.errors import ErrorCode
    from tidelog.protocol.uuids import uuid_to_text

    topics = [
        NewTopic(
            name=name,
            partitions=args.partitions,
            replication_factor=args.replication_factor,
            configs=dict(args.config),
            assignments=_assignment(args.replica_assignment),
        )
        for name in names_of(args, "topic")
    ]
    results = await create_topics(cluster, topics, validate_only=args.dry_run)
    for name, result in list(results.items()):
        exists = isinstance(result, BrokerError) and result.code == ErrorCode.TOPIC_ALREADY_EXISTS
        if exists and args.if_not_exists:
            del results[name]
    if args.json:
        created = [result for result in results.values() if isinstance(result, CreatedTopic)]
        print_json(
            [
                {
                    "topic": one.name,
                    "topic_id": uuid_to_text(one.topic_id),
                    "partitions": one.partitions,
                    "replication_factor": one.replication_factor,
                }
                for one in created
            ]
        )
        return report(results)
    would = "would create" if args.dry_run else "created"
    return report(results, lambda name: f"{would} topic {name}{_shape(results[name])}")


def _shape(result: object) -> str:
    from tidelog.client.topics import CreatedTopic

    if not isinstance(result, CreatedTopic) or result.partitions < 0:
        return ""
    plural = "" if result.partitions == 1 else "s"
    return f" with {result.partitions} partition{plural}, replication factor {result.replication_factor}"


def _assignment(text: str | None) -> dict[int, list[int]]:
    if text is None:
        return {}
    try:
        parts = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--replica-assignment {text}: expected broker ids such as 1:2,2:3") from None
    return dict(enumerate(parts))


# list


def _add_list(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("list", help="list topics")
    parser.add_argument("pattern", nargs="?", metavar="REGEX", help="only topics whose whole name matches")
    parser.add_argument("--topic", dest="pattern", help=argparse.SUPPRESS)
    parser.add_argument("--exclude-internal", action="store_true", help="leave out the broker's own topics")
    parser.add_argument("-l", "--long", action="store_true", help="with partitions and replicas")
    add_json(parser)
    asks(parser, _list)


async def _list(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.protocol.uuids import uuid_to_text

    pattern = _compile(args.pattern)
    topics = [
        topic
        for name, topic in sorted((await cluster.all_topics()).topics.items())
        if pattern.fullmatch(name) and not (args.exclude_internal and topic.is_internal)
    ]
    if args.json:
        print_json(
            [
                {
                    "topic": topic.name,
                    "topic_id": uuid_to_text(topic.topic_id),
                    "partitions": len(topic.partitions),
                    "replication_factor": _replication(topic),
                    "internal": topic.is_internal,
                }
                for topic in topics
            ]
        )
    elif args.long:
        rows = [(topic.name, len(topic.partitions), _replication(topic)) for topic in topics]
        print_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows)
    else:
        for topic in topics:
            print(topic.name)
    return 0


def _replication(topic: TopicInfo) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _compile(pattern: str | None) -> re.Pattern[str]:
    try:
        return re.compile(".*" if pattern is None else pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from None


# describe


def _add_describe(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("describe", help="show partitions, replicas and configs of topics")
    add_names(parser, "topic", "TOPIC", "the names; all topics when none is given")
    parser.add_argument("--offsets", action="store_true", help="with the first and next offset of each partition")
    add_json(parser)
    asks(parser, _describe)


async def _describe(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.cli.cleaning import CleaningPages
    from tidelog.client.configs import Resource, ResourceType, describe_configs

    named = [*args.names, *args.more_names]
    if named:
        topics = [await cluster.topic(name) for name in named]
    else:
        topics = [topic for _, topic in sorted((await cluster.all_topics()).topics.items())]
    shown = []
    pages = CleaningPages(cluster)
    for topic in topics:
        entries = await describe_configs(cluster, Resource(ResourceType.TOPIC, topic.name))
        offsets = await _offsets(cluster, topic) if args.offsets else {}
        cleaning = await pages.cleaning_of(topic, entries)
        if args.json:
            shown.append(_as_json(topic, entries, offsets, cleaning))
        else:
            _print_topic(topic, entries, offsets, cleaning)
    if args.json:
        print_json(shown)
    return 0


async def _offsets(cluster: Cluster, topic: TopicInfo) -> dict[int, tuple[int | None, int | None]]:
    from tidelog.client.errors import ClientError
    from tidelog.client.metadata import TopicPartition
    from tidelog.client.offsets import EARLIEST, LATEST, try_list_offsets

    parts = [TopicPartition(topic.name, index) for index in topic.partitions]
    first = await try_list_offsets(cluster, dict.fromkeys(parts, EARLIEST))
    end = await try_list_offsets(cluster, dict.fromkeys(parts, LATEST))

    def number(results: dict[TopicPartition, Any], at: TopicPartition) -> int | None:
        return None if isinstance(results[at], ClientError) else results[at].offset

    return {at.partition: (number(first, at), number(end, at)) for at in parts}


def _print_topic(
    topic: TopicInfo,
    entries: list[ConfigEntry],
    offsets: dict[int, tuple[int | None, int | None]],
    cleaning: dict[int, Cleaning],
) -> None:
    """In the words and order of Apache's kafka-topics, which scripts read."""
    from tidelog.protocol.uuids import uuid_to_text

    configs = ",".join(f"{entry.name}={entry.value}" for entry in entries if _is_own(entry))
    print(
        f"Topic: {topic.name}\tTopicId: {uuid_to_text(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}\t"
        f"ReplicationFactor: {_replication(topic)}\tConfigs: {configs}"
    )
    for partition in topic.partitions.values():
        leader = "none" if partition.leader < 0 else partition.leader
        line = (
            f"\tTopic: {topic.name}\tPartition: {partition.partition}\tLeader: {leader}\t"
            f"Replicas: {_numbers(partition.replicas)}\tIsr: {_numbers(partition.isr)}"
        )
        if partition.offline:
            line += f"\tOffline: {_numbers(partition.offline)}"
        if partition.partition in offsets:
            first, end = offsets[partition.partition]
            line += f"\tStart: {'-' if first is None else first}\tEnd: {'-' if end is None else end}"
        if partition.partition in cleaning:
            line += cleaning[partition.partition].as_text()
        print(line)


def _is_own(entry: ConfigEntry) -> bool:
    from tidelog.client.configs import ConfigSource

    return entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG


def _numbers(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


def _as_json(
    topic: TopicInfo,
    entries: list[ConfigEntry],
    offsets: dict[int, tuple[int | None, int | None]],
    cleaning: dict[int, Cleaning],
) -> dict[str, Any]:
    from tidelog.protocol.uuids import uuid_to_text

    return {
        "topic": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "configs": {entry.name: entry.value for entry in entries if _is_own(entry)},
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader if partition.leader >= 0 else None,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "offline": list(partition.offline),
                **_offset_fields(offsets.get(partition.partition)),
                **(cleaning[partition.partition].as_fields() if partition.partition in cleaning else {}),
            }
            for partition in topic.partitions.values()
        ],
    }


def _offset_fields(offsets: tuple[int | None, int | None] | None) -> dict[str, int | None]:
    return {} if offsets is None else {"start_offset": offsets[0], "end_offset": offsets[1]}


# alter


def _add_alter(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("alter", help="change configs or the number of partitions")
    add_names(parser, "topic", "TOPIC", "the names")
    parser.add_argument(
        "-c", "--config", type=key_value, action="append", default=[], metavar="NAME=VALUE", help="set; may be repeated"
    )
    parser.add_argument("--delete-config", action="append", default=[], metavar="NAME", help="back to the default")
    parser.add_argument("-p", "--partitions", type=positive, metavar="N", help="grow to so many partitions")
    parser.add_argument("--dry-run", action="store_true", help="have the broker check the request, change nothing")
    parser.set_defaults(run=_run_alter)


def _run_alter(args: argparse.Namespace) -> int:
    if not args.config and not args.delete_config and args.partitions is None:
        raise UsageError("nothing to change: give --config NAME=VALUE, --delete-config NAME or --partitions N")
    return ask(args, lambda cluster: _alter(cluster, args))


async def _alter(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.configs import ConfigChange, Operation, Resource, ResourceType, alter_configs

    names = names_of(args, "topic")
    changes = [ConfigChange(name, Operation.SET, value) for name, value in args.config]
    changes += [ConfigChange(name, Operation.DELETE) for name in args.delete_config]
    would = "would change" if args.dry_run else "changed"
    code = 0
    if changes:
        wanted = {Resource(ResourceType.TOPIC, name): changes for name in names}
        results = await alter_configs(cluster, wanted, validate_only=args.dry_run)
        code = report(results, lambda resource: f"{would} configs of {resource}")
    if args.partitions is not None and code == 0:
        code = await _grow_to(cluster, names, args.partitions, args.dry_run)
    return code


# delete


def _add_delete(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("delete", help="delete topics and all their records")
    add_names(parser, "topic", "TOPIC", "the names, exactly as they are (no patterns)")
    parser.add_argument("--if-exists", action="store_true", help="no error for a topic that does not exist")
    asks(parser, _delete)


async def _delete(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.cli.main import nearest
    from tidelog.client.errors import BrokerError
    from tidelog.client.topics import delete_topics
    from tidelog.protocol.errors import ErrorCode

    results = await delete_topics(cluster, names_of(args, "topic"))
    for name, result in list(results.items()):
        if isinstance(result, BrokerError) and result.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if args.if_exists:
                del results[name]
                continue
            hint = nearest(name, (await cluster.all_topics()).topics)
            results[name] = BrokerError(result.code, result.subject, f"there is no such topic{hint}")
    return report(results, lambda name: f"deleted topic {name}")


# grow


def _add_grow(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("grow", help="add partitions (keys then go to other partitions than before)")
    add_names(parser, "topic", "TOPIC", "the names")
    parser.add_argument("-p", "--partitions", type=positive, required=True, metavar="N", help="how many there shall be")
    parser.add_argument("--dry-run", action="store_true", help="have the broker check the request, change nothing")
    parser.set_defaults(
        run=lambda args: ask(
            args, lambda cluster: _grow_to(cluster, names_of(args, "topic"), args.partitions, args.dry_run)
        )
    )


async def _grow_to(cluster: Cluster, names: list[str], partitions: int, dry_run: bool) -> int:
    from tidelog.client.topics import create_partitions

    results = await create_partitions(cluster, dict.fromkeys(names, partitions), validate_only=dry_run)
    would = "would grow" if dry_run else "grew"
    return report(results, lambda name: f"{would} topic {name} to {partitions} partitions")


# trim


def _add_trim(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser(
        "trim", help="delete the oldest records", description="Delete all records before a place in each partition."
    )
    add_names(parser, "topic", "TOPIC[:P,P]", "topics, or some of their partitions")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--before-offset", type=int, metavar="N", help="records with smaller offsets")
    where.add_argument("--before-time", metavar="TIME", help="records older than a time")
    where.add_argument("--all", action="store_true", help="all records that there are now")
    where.add_argument("--offset-json-file", metavar="FILE", help="places in the format of kafka-delete-records")
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, delete nothing")
    add_json(parser)
    asks(parser, _trim)


async def _trim(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.offsets import EARLIEST, list_offsets
    from tidelog.client.topics import delete_records

    before = await _trim_places(cluster, args)
    if args.dry_run:
        starts = await list_offsets(cluster, dict.fromkeys(before, EARLIEST))
        rows = [(at.topic, at.partition, starts[at].offset, offset) for at, offset in sorted(before.items())]
        print_table(("TOPIC", "PARTITION", "START-OFFSET", "NEW-START-OFFSET"), rows)
        print("nothing was deleted (dry run)", file=sys.stderr)
        return 0
    results = await delete_records(cluster, before)
    done = {at: result for at, result in sorted(results.items()) if not isinstance(result, Exception)}
    if args.json:
        print_json([{"topic": at.topic, "partition": at.partition, "start_offset": low} for at, low in done.items()])
    else:
        for at, low in done.items():
            print(f"{at} begins at offset {low}")
    return report({at: result for at, result in results.items() if isinstance(result, Exception)})


async def _trim_places(cluster: Cluster, args: argparse.Namespace) -> dict[TopicPartition, int]:
    from tidelog.cli.partitions import resolve
    from tidelog.cli.times import parse_time
    from tidelog.client.offsets import LATEST, list_offsets

    if args.offset_json_file is not None:
        return _read_places(args.offset_json_file)
    parts = await resolve(cluster, names_of(args, "topic"))
    if args.before_offset is not None:
        return dict.fromkeys(parts, args.before_offset)
    ends = await list_offsets(cluster, dict.fromkeys(parts, LATEST))
    if args.all:
        return {at: ends[at].offset for at in parts}
    found = await list_offsets(cluster, dict.fromkeys(parts, parse_time(args.before_time)))
    return {at: found[at].offset if found[at].offset >= 0 else ends[at].offset for at in parts}


def _read_places(path: str) -> dict[TopicPartition, int]:
    from tidelog.client.metadata import TopicPartition

    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        return {
            TopicPartition(str(one["topic"]), int(one["partition"])): int(one["offset"])
            for one in document["partitions"]
        }
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        shape = '{"partitions": [{"topic": "t", "partition": 0, "offset": 5}]}'
        raise CommandError(f"{path} is not a list of places ({error!r}); expected {shape}") from None
