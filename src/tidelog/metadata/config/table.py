"""The one table of configs: every config of Apache Kafka 4.3.1 (kafka.tsv) and our own, by scope and name.

It feeds the parser, DescribeConfigs, the checks of AlterConfigs, the docs and the nearest-name hints. It holds facts
only: values live in the node's file and in the metadata log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import cast

from tidelog.metadata.config.honoured import HONOURED
from tidelog.metadata.config.key import ConfigKey, ConfigType, Importance, Scope, Synonym, UpdateMode
from tidelog.metadata.config.own import DEFAULTS, OWN_CONFIGS


def _synonyms(text: str) -> tuple[Synonym, ...]:
    if text == "-":
        return ()
    pairs = (part.partition("*") for part in text.split(","))
    return tuple(Synonym(name, int(factor or 1)) for name, _, factor in pairs)


def _key(line: str) -> ConfigKey:
    scope, name, kind, default_text, validator, importance, flags, mode, synonyms = line.rstrip("\n").split("\t")
    kafka_default = default_text[1:] if default_text.startswith("=") else None
    in_broker = scope in ("broker", "dynamic")
    return ConfigKey(
        name=name,
        scope=cast(Scope, "broker" if in_broker else scope),
        type=cast(ConfigType, kind),
        default=DEFAULTS.get(name, kafka_default) if in_broker else kafka_default,
        validator=validator,
        importance=cast(Importance, importance),
        update_mode=cast(UpdateMode, mode if in_broker else "cluster-wide"),
        synonyms=_synonyms(synonyms),
        internal="internal" in flags,
        per_listener="per-listener" in flags,
        dynamic_only=scope == "dynamic",
        honoured=name in HONOURED,
        kafka_default=kafka_default,
        required_in_kafka=default_text == "required",
    )


@cache
def _lines() -> dict[str, dict[str, str]]:
    tables: dict[str, dict[str, str]] = {"broker": {}, "topic": {}, "group": {}, "client-metrics": {}}
    tables["dynamic"] = tables["broker"]
    with open(os.path.join(os.path.dirname(__file__), "kafka.tsv"), encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                scope, name, _ = line.split("\t", 2)
                tables[scope][name] = line
    return tables


class _Table(Mapping[str, ConfigKey]):
    """Reads the file at the first look and a line at the first question for it: a start asks for a few dozen."""

    __slots__ = ("_keys", "_scope")

    def __init__(self, scope: Scope, own: tuple[ConfigKey, ...] = ()) -> None:
        self._scope = scope
        self._keys = {key.name: key._replace(honoured=key.name in HONOURED) for key in own}

    def __getitem__(self, name: str) -> ConfigKey:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _key(_lines()[self._scope][name])
        return key

    def __contains__(self, name: object) -> bool:
        return name in self._keys or name in _lines()[self._scope]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(_lines()[self._scope].keys() | self._keys.keys()))

    def __len__(self) -> int:
        return len(_lines()[self._scope].keys() | self._keys.keys())


BROKER_CONFIGS: Mapping[str, ConfigKey] = _Table("broker", OWN_CONFIGS)
TOPIC_CONFIGS: Mapping[str, ConfigKey] = _Table("topic")
GROUP_CONFIGS: Mapping[str, ConfigKey] = _Table("group")
CLIENT_METRICS_CONFIGS: Mapping[str, ConfigKey] = _Table("client-metrics")

_TABLES: dict[Scope, Mapping[str, ConfigKey]] = {
    "broker": BROKER_CONFIGS,
    "topic": TOPIC_CONFIGS,
    "group": GROUP_CONFIGS,
    "client-metrics": CLIENT_METRICS_CONFIGS,
}


def configs_of(scope: Scope) -> Mapping[str, ConfigKey]:
    return _TABLES[scope]
