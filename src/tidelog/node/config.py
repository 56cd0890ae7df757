"""The settings that a node starts with: a server.properties, KAFKA_... variables and --override, the later one wins.

Owns reading them, the warnings (unknown names, names that nothing acts on) and the errors (values that are not
allowed); the table of configs decides about each. Keeps the text of each setting, because DescribeConfigs shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from tidelog.metadata.config import BROKER_CONFIGS, TOPIC_CONFIGS, BrokerValues, ConfigError, Value, parse
from tidelog.metadata.config.honoured import NOT_YET, PER_LISTENER
from tidelog.metadata.config.key import ConfigKey
from tidelog.metadata.config.prefixes import base_name, is_passed_on
from tidelog.node.environment import config_name, settings
from tidelog.node.listeners import AUTO, Listener, check_advertised, check_ports, parse_listeners, protocol_map


class Setting(NamedTuple):
    name: str
    text: str
    origin: str
    """For messages: the file and line, the variable, or --override."""


class NodeConfig:
    """A node's settings, checked. Ask by Kafka's names: config.get_int("num.partitions")."""

    def __init__(
        self, static: Mapping[str, str], *, cluster_id: str | None = None, warnings: Sequence[str] = ()
    ) -> None:
        self.static = dict(static)
        self.values = BrokerValues(self.static)
        self.cluster_id = cluster_id
        """CLUSTER_ID of the environment, for a data directory that is new."""
        self.warnings = list(warnings)

    def is_set(self, name: str) -> bool:
        """True where somebody set it, false where the default speaks."""
        return name in self.static

    def get(self, name: str) -> Value:
        return self.values[name]

    def get_int(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    def get_optional_int(self, name: str) -> int | None:
        value = self.values[name]
        assert value is None or isinstance(value, int), f"{name} is {value!r}"
        return value

    def get_bool(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool), f"{name} is {value!r}"
        return value

    def get_float(self, name: str) -> float:
        value = self.values[name]
        assert isinstance(value, float), f"{name} is {value!r}"
        return value

    def get_str(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str), f"{name} is {value!r}"
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        value = self.values[name]
        assert isinstance(value, tuple), f"{name} is {value!r}"
        return value

    @property
    def node_id(self) -> int:
        return self.get_int("node.id")

    @property
    def roles(self) -> tuple[str, ...]:
        return self.get_list("process.roles")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.get_list("log.dirs" if self.is_set("log.dirs") else "log.dir")

    @cached_property
    def listeners(self) -> tuple[Listener, ...]:
        found = parse_listeners("listeners", self.get_list("listeners"), self._protocols)
        check_ports(found)
        return found

    @cached_property
    def advertised_listeners(self) -> tuple[Listener, ...] | None:
        """None is auto: the answering broker names the address that the client dialled."""
        entries = self.get_list("advertised.listeners")
        if entries == (AUTO,):
            return None
        found = parse_listeners("advertised.listeners", entries, self._protocols)
        check_advertised(found, self.listeners)
        return found

    @property
    def own_listener(self) -> str:
        """The listener that other brokers use, upper-case."""
        name = self.get("inter.broker.listener.name")
        return str(name or "PLAINTEXT").upper()

    @property
    def _protocols(self) -> dict[str, str]:
        name = "listener.security.protocol.map"
        controllers = self.get_list("controller.listener.names")
        return protocol_map(self.get_str(name), controllers, is_set=self.is_set(name))

    def capped(self, name: str, brokers: int) -> int:
        """Replication factor or least in-sync replicas of an internal topic: what was set, or Kafka's default but
        never more than there are brokers, so that one node works without a setting."""
        return self.get_int(name) if self.is_set(name) else min(self.get_int(name), brokers)


def load(path: str | None, environ: Mapping[str, str], overrides: Sequence[str] = ()) -> NodeConfig:
    """The settings of all three places, or ConfigError with a line for each value that is not allowed."""
    variables, for_a_jvm = settings(environ)
    found = _from_file(path) if path is not None else []
    found += [Setting(config_name(name), text, f"environment variable {name}") for name, text in variables.items()]
    found += [_override(text) for text in overrides]
    final = {setting.name: setting for setting in found}
    _share_id(final)

    warnings = [f"environment variable {name} is ignored: it is for a JVM" for name in for_a_jvm]
    errors = []
    for setting in final.values():
        try:
            warnings += _warnings(setting)
        except ConfigError as error:
            errors.append(f"{setting.origin}: {error}")
    if errors:
        raise ConfigError("\n".join(errors))
    static = {name: setting.text for name, setting in final.items()}
    config = NodeConfig(static, cluster_id=environ.get("CLUSTER_ID") or None, warnings=warnings)
    _check_together(config)
    return config


def _from_file(path: str) -> list[Setting]:
    # A node without a file, as in a fixture, need not pay for the parser.
    from tidelog.node.properties import decode, parse_properties

    try:
        with open(path, "rb") as file:
            text = decode(file.read())
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the settings: {error.strerror}") from error
    try:
        return [Setting(entry.name, entry.value, f"{path}, line {entry.line}") for entry in parse_properties(text)]
    except ConfigError as error:
        raise ConfigError(f"{path}, {error}") from error


def _override(text: str) -> Setting:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--override {text}: expected KEY=VALUE, such as --override num.partitions=3")
    return Setting(name.strip(), value.strip(), "--override")


def _share_id(final: dict[str, Setting]) -> None:
    """broker.id is the old name of node.id: one of them gives both their value."""
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if name in final and other not in final:
            final[other] = final[name]._replace(name=other)


def _warnings(setting: Setting) -> list[str]:
    """Raises ConfigError for a value that is not allowed."""
    key = BROKER_CONFIGS.get(base_name(setting.name))
    if key is None or key.dynamic_only:
        return [f"{setting.origin}: {_unknown(setting.name, key)}"]
    value = parse(key._replace(name=setting.name), setting.text)
    if key.honoured and (setting.name == key.name or key.name in PER_LISTENER):
        missing = NOT_YET.get(key.name, {}).keys() & set(value if isinstance(value, tuple) else (value,))
        return [f"{setting.origin}: {setting.name}={word}: {NOT_YET[key.name][word]}" for word in sorted(missing)]
    if setting.name == key.name and value == (None if key.default is None else parse(key, key.default)):
        return []
    return [f"{setting.origin}: {setting.name} is known but has no effect yet"]


def _unknown(name: str, key: ConfigKey | None) -> str:
    if key is not None:
        return f"{name} is ignored: it can only be set while the broker runs"
    if is_passed_on(name):
        return f"{name} is ignored: it is a setting for a plug-in, and there are none"
    from tidelog.metadata.config.hints import unknown

    return f"{name} is ignored: it {unknown(name, 'broker')}"


def _check_together(config: NodeConfig) -> None:
    if config.get_int("broker.id") not in (-1, config.node_id):
        raise ConfigError(
            f"node.id={config.node_id} and broker.id={config.get_int('broker.id')}: they are two names of one thing"
        )
    low, high = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
    if config.get_int(low) > config.get_int(high):
        raise ConfigError(f"{low}={config.get_int(low)}: expected at most {high}, which is {config.get_int(high)}")
    _check_limits(config)
    _check_internal_topics(config)
    if not config.log_dirs or "" in config.log_dirs:
        raise ConfigError("log.dirs: expected at least one directory")
    # Both parse when they are first asked for; here, so that a bad one is an error of the settings.
    _ = config.listeners, config.advertised_listeners


def _check_internal_topics(config: NodeConfig) -> None:
    """Apache takes less than a topic's own config takes, and then never creates the topic: groups wait for ever."""
    for name in ("offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"):
        try:
            parse(TOPIC_CONFIGS["segment.bytes"], str(config.get_int(name)))
        except ConfigError as error:
            raise ConfigError(f"{name}={config.get_int(name)}: the topic could not be created with {error}") from None


def _check_limits(config: NodeConfig) -> None:
    bytes_max, request_max = "queued.max.request.bytes", "socket.request.max.bytes"
    if 0 < config.get_int(bytes_max) < config.get_int(request_max):
        raise ConfigError(
            f"{bytes_max}={config.get_int(bytes_max)}: expected at least {request_max}, which is"
            f" {config.get_int(request_max)}: such a request would never find room"
        )
    overrides = config.get_str("max.connections.per.ip.overrides")
    for entry in filter(None, (part.strip() for part in overrides.split(","))):
        host, _, number = entry.rpartition(":")
        if not host or not number.isdecimal():
            raise ConfigError(
                f"max.connections.per.ip.overrides={overrides}: expected address:number pairs, not {entry}"
            )
    if config.get_int("max.connections.per.ip") == 0 and not overrides:
        raise ConfigError("max.connections.per.ip=0 lets in only those that max.connections.per.ip.overrides names")
