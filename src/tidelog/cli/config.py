"""`tidelog config`: get, set, unset configs of topics, brokers and groups."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.common import (
    Parser,
    UsageError,
    add_json,
    ask,
    key_value,
    print_json,
    print_table,
    report,
)
from tidelog.cli.verbs import add_verbs, asks

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.configs import ConfigChange, ConfigEntry, Resource

TYPES: Final = ("topic", "broker", "group", "client-metrics", "broker-logger")
DEFAULT: Final = "default"


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    add_verbs(
        commands, "config", "get, set and unset configs of topics, brokers and groups", _add_get, _add_set, _add_unset
    )


def _add_get(verbs: argparse._SubParsersAction[Parser]) -> None:
    get = verbs.add_parser("get", help="show configs")
    _add_resource(get)
    get.add_argument("names", nargs="*", metavar="NAME", help="only these configs")
    get.add_argument("-a", "--all", action="store_true", help="also those that have their default")
    get.add_argument("--synonyms", action="store_true", help="where the value comes from, and what it covers")
    get.add_argument("--docs", action="store_true", help="with a line of documentation each")
    add_json(get)
    asks(get, _get, words="names")


def _add_set(verbs: argparse._SubParsersAction[Parser]) -> None:
    change = verbs.add_parser("set", help="set configs")
    _add_resource(change)
    change.add_argument("values", nargs="*", metavar="NAME=VALUE", help="what to set")
    change.add_argument(
        "--append", type=key_value, action="append", default=[], metavar="NAME=VALUE", help="add to a list"
    )
    change.add_argument(
        "--subtract", type=key_value, action="append", default=[], metavar="NAME=VALUE", help="take from a list"
    )
    change.add_argument("--dry-run", action="store_true", help="have the broker check the request, change nothing")
    change.set_defaults(run=_run_set, words="values")


def _add_unset(verbs: argparse._SubParsersAction[Parser]) -> None:
    unset = verbs.add_parser("unset", help="back to the default")
    _add_resource(unset)
    unset.add_argument("names", nargs="+", metavar="NAME", help="what to unset")
    unset.add_argument("--dry-run", action="store_true", help="have the broker check the request, change nothing")
    unset.set_defaults(run=_run_unset, words="names")


def _add_resource(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", choices=TYPES, metavar="TYPE", help=", ".join(TYPES))
    parser.add_argument(
        "entity", metavar="ENTITY", help="a topic, a group, a broker's id, or `default` for all brokers"
    )


def _resource(args: argparse.Namespace) -> Resource:
    from tidelog.client.configs import Resource, ResourceType

    kind = ResourceType[args.type.upper().replace("-", "_")]
    is_broker = kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    if is_broker and args.entity == DEFAULT:
        return Resource(kind, "")
    if is_broker and not args.entity.isdecimal():
        raise UsageError(f"{args.entity!r} is not the id of a broker; expected a number, or `default` for all brokers")
    return Resource(kind, args.entity)


async def _get(cluster: Cluster, args: argparse.Namespace) -> int:
    from tidelog.client.configs import describe_configs

    resource = _resource(args)
    found = await describe_configs(cluster, resource, args.names or None, synonyms=True, documentation=args.docs)
    _check_names(args.names, found, resource)
    shown = [entry for entry in found if args.all or args.names or not entry.is_default]
    if args.json:
        print_json([_as_json(entry, args) for entry in shown])
        return 0
    columns = ["NAME", "VALUE", "SOURCE"]
    rows = [[entry.name, _value(entry), entry.source.name] for entry in shown]
    if args.synonyms:
        columns.append("SYNONYMS")
        for row, entry in zip(rows, shown, strict=True):
            row.append(" > ".join(f"{one.source.name}:{one.name}={one.value}" for one in entry.synonyms))
    if args.docs:
        columns.append("DOCUMENTATION")
        for row, entry in zip(rows, shown, strict=True):
            row.append(entry.documentation or "")
    if rows:
        print_table(columns, rows)
    else:
        print(f"{resource} has only defaults; --all shows them")
    return 0


def _check_names(names: list[str], found: list[ConfigEntry], resource: Resource) -> None:
    from tidelog.cli.main import nearest

    known = {entry.name for entry in found}
    for name in names:
        if name not in known:
            raise UsageError(
                f"{resource} has no config {name!r}{nearest(name, known)}; `--all` without names shows all"
            )


def _value(entry: ConfigEntry) -> str | None:
    return "(sensitive)" if entry.is_sensitive else entry.value


def _as_json(entry: ConfigEntry, args: argparse.Namespace) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }
    if args.synonyms:
        shown["synonyms"] = [
            {"name": one.name, "value": one.value, "source": one.source.name} for one in entry.synonyms
        ]
    if args.docs:
        shown["documentation"] = entry.documentation
    return shown


def _run_set(args: argparse.Namespace) -> int:
    from tidelog.client.configs import ConfigChange, Operation

    try:
        changes = [ConfigChange(name, Operation.SET, value) for name, value in map(key_value, args.values)]
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error)) from None
    changes += [ConfigChange(name, Operation.APPEND, value) for name, value in args.append]
    changes += [ConfigChange(name, Operation.SUBTRACT, value) for name, value in args.subtract]
    if not changes:
        raise UsageError("nothing to set: give NAME=VALUE, --append NAME=VALUE or --subtract NAME=VALUE")
    return ask(args, lambda cluster: _alter(cluster, args, changes))


def _run_unset(args: argparse.Namespace) -> int:
    from tidelog.client.configs import ConfigChange, Operation

    changes = [ConfigChange(name, Operation.DELETE) for name in args.names]
    return ask(args, lambda cluster: _alter(cluster, args, changes))


async def _alter(cluster: Cluster, args: argparse.Namespace, changes: list[ConfigChange]) -> int:
    from tidelog.client.configs import alter_configs

    results = await alter_configs(cluster, {_resource(args): changes}, validate_only=args.dry_run)
    would = "would change" if args.dry_run else "changed"
    names = ", ".join(change.name for change in changes)
    return report(results, lambda resource: f"{would} {names} of {resource}")
