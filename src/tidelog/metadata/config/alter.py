"""May these changes be made to a resource's configs, and what are its overrides afterwards.

The controller asks here before it writes ConfigRecords. Nothing is stored here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.metadata.config.key import ConfigError, ConfigKey, Scope
from tidelog.metadata.config.parse import parse
from tidelog.metadata.config.prefixes import base_name
from tidelog.metadata.config.resolve import BrokerValues
from tidelog.metadata.config.rules import broken_group_rule, broken_topic_rule
from tidelog.metadata.config.table import configs_of

INVALID_CONFIG: Final = 40
INVALID_REQUEST: Final = 42


class Op(IntEnum):
    """IncrementalAlterConfigs' operations."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    name: str
    op: int
    value: str | None


class Refusal(NamedTuple):
    """Kafka's error code and a sentence for the user."""

    code: int
    message: str


def altered(
    scope: Scope,
    current: Mapping[str, str],
    changes: Iterable[Change],
    *,
    broker: BrokerValues | None = None,
    cluster_wide: bool = False,
) -> dict[str, str] | Refusal:
    """IncrementalAlterConfigs on one resource: the overrides that result, all or nothing. `broker` gives the
    limits for a group's configs; `cluster_wide` is the empty broker name, which changes every broker."""
    result = dict(current)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            return Refusal(INVALID_REQUEST, f"{change.name} is named twice in one request")
        seen.add(change.name)
        refusal = _apply(scope, result, change, cluster_wide)
        if refusal is not None:
            return refusal
    return _whole(scope, result, broker)


def replaced(
    scope: Scope,
    configs: Mapping[str, str | None],
    *,
    broker: BrokerValues | None = None,
    cluster_wide: bool = False,
) -> dict[str, str] | Refusal:
    """AlterConfigs: the overrides are exactly these."""
    changes = [Change(name, Op.SET, value) for name, value in configs.items()]
    return altered(scope, {}, changes, broker=broker, cluster_wide=cluster_wide)


def overrides_of_new_topic(configs: Mapping[str, str | None]) -> dict[str, str] | Refusal:
    """CreateTopics, where Kafka has another code for a missing value."""
    for name, value in configs.items():
        if value is None:
            return Refusal(INVALID_CONFIG, f"{name} needs a value; to take the default, leave it out")
    return replaced("topic", configs)


def _apply(scope: Scope, result: dict[str, str], change: Change, cluster_wide: bool) -> Refusal | None:
    key = configs_of(scope).get(base_name(change.name) if scope == "broker" else change.name)
    if key is None:
        # A setting that an earlier or later release left behind must stay removable.
        if change.op == Op.DELETE:
            result.pop(change.name, None)
            return None
        from tidelog.metadata.config.hints import unknown

        return Refusal(INVALID_CONFIG, f"{change.name} {unknown(change.name, scope)}")
    if refusal := _not_changeable(key, change.name, cluster_wide):
        return refusal
    if change.op == Op.DELETE:
        result.pop(change.name, None)
        return None
    if change.value is None:
        return Refusal(INVALID_REQUEST, f"{change.name} needs a value; to remove it, delete it")
    text: str | Refusal = change.value
    if change.op in (Op.APPEND, Op.SUBTRACT):
        text = _edited_list(key, result.get(change.name), change)
    elif change.op != Op.SET:
        text = Refusal(INVALID_REQUEST, f"{change.op} is not an operation: 0 set, 1 delete, 2 append, 3 subtract")
    if isinstance(text, Refusal):
        return text
    try:
        parse(key._replace(name=change.name), text)
    except ConfigError as error:
        # Kafka's broker checks its own configs before the controller sees them, and answers with another code.
        return Refusal(INVALID_REQUEST if scope == "broker" else INVALID_CONFIG, str(error))
    result[change.name] = text
    return None


def _not_changeable(key: ConfigKey, name: str, cluster_wide: bool) -> Refusal | None:
    if key.update_mode == "read-only":
        return Refusal(INVALID_REQUEST, f"{name} cannot be changed while the broker runs: set it at start")
    if key.per_listener and name == key.name:
        message = f"{name} can be changed only for one listener: listener.name.<listener>.{name}"
        return Refusal(INVALID_REQUEST, message)
    if cluster_wide and (key.update_mode == "per-broker" or name != key.name):
        return Refusal(INVALID_REQUEST, f"{name} can be changed only for one broker: name its id")
    return None


def _edited_list(key: ConfigKey, current: str | None, change: Change) -> str | Refusal:
    if key.type != "list":
        verb = "append to" if change.op == Op.APPEND else "subtract from"
        return Refusal(INVALID_CONFIG, f"cannot {verb} {change.name}: it is not a list")
    # As in Kafka, a list that is not set starts from the default of the table, not from what the broker's file says.
    items = [item for item in ((key.default if current is None else current) or "").split(",") if item]
    for item in (change.value or "").split(","):
        if change.op == Op.APPEND and item not in items:
            items.append(item)
        elif change.op == Op.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _whole(scope: Scope, result: dict[str, str], broker: BrokerValues | None) -> dict[str, str] | Refusal:
    broken = None
    if scope == "topic":
        broken = broken_topic_rule(result)
    elif scope == "group":
        broken = broken_group_rule(result, broker or BrokerValues())
    return result if broken is None else Refusal(INVALID_CONFIG, broken)
