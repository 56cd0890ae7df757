"""What DescribeConfigs says of a topic, a broker or a group: value, source, synonyms, as Apache Kafka 4.3.1 answers.

Neutral values only; the API's handler turns them into a response.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from tidelog.metadata.config.key import ConfigKey, Value
from tidelog.metadata.config.parse import to_text
from tidelog.metadata.config.prefixes import base_name
from tidelog.metadata.config.resolve import BrokerValues, effective_group_values, effective_topic_values
from tidelog.metadata.config.table import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS

TYPE_CODES = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
UNKNOWN_TYPE_CODE = 0


class Source(IntEnum):
    """DescribeConfigsResponse's config source."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class DescribedSynonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class DescribedConfig(NamedTuple):
    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type_code: int
    synonyms: tuple[DescribedSynonym, ...]
    doc: str


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerValues, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    values = effective_topic_values(overrides, broker)
    return [
        _inheriting(key, values[key.name], overrides, broker, Source.TOPIC)
        for key in _wanted(TOPIC_CONFIGS.values(), names)
        if not key.internal or key.name in overrides
    ]


def describe_group(
    overrides: Mapping[str, str], broker: BrokerValues, names: Collection[str] | None = None
) -> list[DescribedConfig]:
    values = effective_group_values(overrides, broker)
    return [
        _inheriting(key, values[key.name], overrides, broker, Source.GROUP)
        for key in _wanted(GROUP_CONFIGS.values(), names)
    ]


def describe_broker(broker: BrokerValues, names: Collection[str] | None = None) -> list[DescribedConfig]:
    """For a broker's own id: every config, and what was set under names that the table does not know."""
    set_names = {**broker.static, **broker.dynamic_default, **broker.dynamic}
    known = [
        _of_broker(key, broker)
        for key in _wanted(BROKER_CONFIGS.values(), names)
        if (not key.internal and not key.dynamic_only) or key.name in set_names
    ]
    others = (name for name in set_names if name not in BROKER_CONFIGS and (names is None or name in names))
    return known + [_strange(name, broker) for name in others]


def describe_broker_defaults(broker: BrokerValues, names: Collection[str] | None = None) -> list[DescribedConfig]:
    """For the empty broker name: only what was set at run time for the whole cluster."""
    return [
        _of_cluster(name, text, broker)
        for name, text in broker.dynamic_default.items()
        if names is None or name in names
    ]


def _wanted(keys: Iterable[ConfigKey], names: Collection[str] | None) -> Iterable[ConfigKey]:
    return keys if names is None else (key for key in keys if key.name in names)


def _inheriting(
    key: ConfigKey, value: Value, overrides: Mapping[str, str], broker: BrokerValues, own_source: Source
) -> DescribedConfig:
    text = to_text(value)
    inherited: tuple[DescribedSynonym, ...] = ()
    if key.synonyms:
        inherited = _layers(BROKER_CONFIGS[key.synonyms[0].name], broker)
    elif own_source is Source.GROUP:
        inherited = (DescribedSynonym(key.name, key.default, Source.DEFAULT),)
    own = (DescribedSynonym(key.name, text, own_source),) if key.name in overrides else ()
    return _described(key, text, own + inherited, read_only=False)


def _of_broker(key: ConfigKey, broker: BrokerValues) -> DescribedConfig:
    text = None if key.sensitive else to_text(broker[key.name])
    return _described(key, text, _layers(key, broker), read_only=key.update_mode == "read-only")


def _of_cluster(name: str, text: str, broker: BrokerValues) -> DescribedConfig:
    key = BROKER_CONFIGS.get(name)
    if key is None:
        return _strange(name, broker)
    value = None if key.sensitive else text
    synonyms = (DescribedSynonym(name, value, Source.DYNAMIC_DEFAULT_BROKER),)
    return _described(key, value, synonyms, read_only=key.update_mode == "read-only")


def _strange(name: str, broker: BrokerValues) -> DescribedConfig:
    """A name that is not in the table: a listener's own setting, or one that only a plug-in would know."""
    key = BROKER_CONFIGS.get(base_name(name))
    if key is not None:
        synonyms = tuple(_found([name, key.name], key, broker))
        return _described(key, synonyms[0].value, synonyms, read_only=True)._replace(name=name)
    # Nobody knows whether it is a secret, so its value stays hidden.
    source = next(source for layer, source in _sources(broker) if name in layer)
    synonyms = (DescribedSynonym(name, None, source),)
    return DescribedConfig(name, None, source, True, True, UNKNOWN_TYPE_CODE, synonyms, "")


def _sources(broker: BrokerValues) -> tuple[tuple[Mapping[str, str], Source], ...]:
    return (
        (broker.dynamic, Source.DYNAMIC_BROKER),
        (broker.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
        (broker.static, Source.STATIC_BROKER),
    )


def _layers(key: ConfigKey, broker: BrokerValues) -> tuple[DescribedSynonym, ...]:
    """Every place that could give the config its value, first wins. Kafka leaves out what stands before the first
    entry with the config's own name: log.retention.hours in the file does not show under log.retention.ms."""
    chain = [synonym.name for synonym in key.synonyms] or [key.name]
    found = _found(chain, key, broker)
    while found and found[0].name != key.name:
        del found[0]
    return tuple(found)


def _found(chain: list[str], key: ConfigKey, broker: BrokerValues) -> list[DescribedSynonym]:
    found = [
        DescribedSynonym(name, None if key.sensitive else layer[name], source)
        for layer, source in _sources(broker)
        for name in chain
        if name in layer
    ]
    defaults = ((name, BROKER_CONFIGS[name].default) for name in chain if name in BROKER_CONFIGS)
    return found + [DescribedSynonym(name, text, Source.DEFAULT) for name, text in defaults if text is not None]


def _described(
    key: ConfigKey, text: str | None, synonyms: tuple[DescribedSynonym, ...], *, read_only: bool
) -> DescribedConfig:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return DescribedConfig(key.name, text, source, read_only, key.sensitive, TYPE_CODES[key.type], synonyms, key.doc)
