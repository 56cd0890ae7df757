"""Which value a config has: override, run-time setting of this broker, of all brokers, the file, the default.

Owns the order of the layers and the synonyms between topic, group and broker names. Must not know where a layer is
stored or who uses the values: tidelog.log gets a plain mapping of Kafka's topic config names to typed values.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.metadata.config.key import ConfigError, ConfigKey, Value
from tidelog.metadata.config.parse import parse
from tidelog.metadata.config.table import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS

_NOTHING: Mapping[str, str] = {}


class BrokerValues:
    """The three layers of one broker's settings, as text, and the typed values that follow. Never changes: a changed
    layer is a new object, so everything derived may be kept."""

    __slots__ = ("_topic_defaults", "_values", "dynamic", "dynamic_default", "static")

    def __init__(
        self,
        static: Mapping[str, str] = _NOTHING,
        dynamic: Mapping[str, str] = _NOTHING,
        dynamic_default: Mapping[str, str] = _NOTHING,
    ) -> None:
        self.static = static
        """What the node was started with."""
        self.dynamic = dynamic
        """Set at run time for this broker."""
        self.dynamic_default = dynamic_default
        """Set at run time for every broker of the cluster."""
        self._values: dict[str, Value] = {}
        self._topic_defaults: dict[str, Value] | None = None

    def with_dynamic(self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]) -> BrokerValues:
        return BrokerValues(self.static, dynamic, dynamic_default)

    def text(self, name: str) -> str | None:
        """The text that decides, or None when nobody set it."""
        for layer in (self.dynamic, self.dynamic_default):
            if name in layer:
                return layer[name]
        return None if self._is_outvoted(name) else self.static.get(name)

    def _is_outvoted(self, name: str) -> bool:
        """log.retention.ms at run time takes log.retention.hours of the file out of play, in DescribeConfigs too."""
        if name not in self.static or name not in BROKER_CONFIGS:
            return False
        chain = BROKER_CONFIGS[name].synonyms
        return any(other.name in self.dynamic or other.name in self.dynamic_default for other in chain)

    def is_set(self, name: str) -> bool:
        return self.text(name) is not None

    def __getitem__(self, name: str) -> Value:
        """The typed value of a known config, default included."""
        if name not in self._values:
            self._values[name] = self._parsed(BROKER_CONFIGS[name])
        return self._values[name]

    def _parsed(self, key: ConfigKey) -> Value:
        for layer in (self.dynamic, self.dynamic_default):
            if key.name in layer and (value := _stored(key, layer[key.name])) is not None:
                return value
        text = None if self._is_outvoted(key.name) else self.static.get(key.name)
        return default_of(key) if text is None else parse(key, text)

    def topic_defaults(self) -> dict[str, Value]:
        if self._topic_defaults is None:
            self._topic_defaults = {name: self._inherited(key) for name, key in TOPIC_CONFIGS.items()}
        return self._topic_defaults

    def _inherited(self, key: ConfigKey) -> Value:
        for synonym in key.synonyms:
            value = self[synonym.name]
            if value is None:
                continue
            if synonym.factor != 1:
                assert isinstance(value, int), f"{synonym.name} has a unit"
                value *= synonym.factor
            # Any negative retention means "without limit"; hours and minutes must not turn it into -3600000.
            return -1 if key.name == "retention.ms" and isinstance(value, int) and value < 0 else value
        return default_of(key)


def _stored(key: ConfigKey, text: str) -> Value:
    """The value of a setting that was checked when it was stored; None where another release, with other rules, stored
    it. It is better to run without it than not to run."""
    try:
        return parse(key, text)
    except ConfigError:
        return None


def default_of(key: ConfigKey) -> Value:
    return None if key.default is None else parse(key, key.default)


def effective_topic_values(overrides: Mapping[str, str], broker: BrokerValues) -> dict[str, Value]:
    """Every topic config by Kafka's name, typed. Overrides that the table does not know or allow are left out: they can
    come from a log that another release wrote."""
    values = dict(broker.topic_defaults())
    for name, text in overrides.items():
        if name in TOPIC_CONFIGS and (value := _stored(TOPIC_CONFIGS[name], text)) is not None:
            values[name] = value
    return values


def effective_group_values(overrides: Mapping[str, str], broker: BrokerValues) -> dict[str, Value]:
    """Every group config by Kafka's name, typed."""
    values: dict[str, Value] = {}
    for name, key in GROUP_CONFIGS.items():
        values[name] = broker[key.synonyms[0].name] if key.synonyms else default_of(key)
        if name in overrides and (value := _stored(key, overrides[name])) is not None:
            values[name] = value
    return values
