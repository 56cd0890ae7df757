"""One config as the table knows it: the facts, not its value. Knows nothing of files, nodes or requests."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from tidelog.kernel.errors import TidelogError

Scope: TypeAlias = Literal["broker", "topic", "group", "client-metrics"]
ConfigType: TypeAlias = Literal["boolean", "string", "int", "short", "long", "double", "list", "class", "password"]
UpdateMode: TypeAlias = Literal["read-only", "per-broker", "cluster-wide"]
Importance: TypeAlias = Literal["high", "medium", "low"]


class Password(str):
    """A string that does not show itself in a log line or a traceback."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class ConfigError(TidelogError):
    """A value that the table does not allow, as one sentence that says what is allowed."""


class Synonym(NamedTuple):
    """Another name that gives a config its value when the config itself is not set; `factor` converts its unit."""

    name: str
    factor: int = 1


class ConfigKey(NamedTuple):
    """A named tuple and not a dataclass: 400 of them are made at each start."""

    name: str
    scope: Scope
    type: ConfigType
    default: str | None
    """As it would be written in a file; None is Kafka's null."""
    validator: str
    """The rule in the notation of kafka.tsv; validators.py reads it."""
    importance: Importance
    update_mode: UpdateMode
    synonyms: tuple[Synonym, ...] = ()
    """Where the value may come from, first wins. For a broker config the chain contains the config itself."""
    internal: bool = False
    per_listener: bool = False
    """May be changed at run time only with a listener.name.<listener>. prefix."""
    dynamic_only: bool = False
    """Exists only as a run-time setting (the replication throttles): a server.properties may not hold it."""
    honoured: bool = False
    """False: accepted and shown, but nothing in this release acts on it."""
    kafka_default: str | None = None
    """Kafka's own default, which `default` differs from only where docs/differences.md says why."""
    required_in_kafka: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type == "password"

    @property
    def doc(self) -> str:
        """One line on what the config does."""
        from tidelog.metadata.config.texts import texts

        return texts().get(f"{self.scope}/{self.name}") or texts().get(self.name, "")
