"""Rules that tie several configs of one resource together. A rule is a sentence when it is broken."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.metadata.config.key import Value
from tidelog.metadata.config.parse import parse
from tidelog.metadata.config.resolve import BrokerValues, default_of, effective_group_values
from tidelog.metadata.config.table import BROKER_CONFIGS, TOPIC_CONFIGS


def broken_topic_rule(overrides: Mapping[str, str]) -> str | None:
    def value(name: str) -> Value:
        key = TOPIC_CONFIGS[name]
        return parse(key, overrides[name]) if name in overrides else default_of(key)

    least, most = value("min.compaction.lag.ms"), value("max.compaction.lag.ms")
    if _number(least) > _number(most):
        return f"min.compaction.lag.ms={least} must not be greater than max.compaction.lag.ms={most}"
    if value("remote.storage.enable"):
        return "remote.storage.enable=true: there is no tiered storage yet"
    return None


def broken_group_rule(overrides: Mapping[str, str], broker: BrokerValues) -> str | None:
    """A group's own timeouts and limits must lie within what the broker allows."""
    values = effective_group_values(overrides, broker)
    for name in overrides:
        kind, _, rest = name.partition(".")
        least, most = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
        if least in BROKER_CONFIGS and _number(values[name]) < _number(broker[least]):
            return f"{name}={overrides[name]} must not be less than {least}={broker[least]}"
        if most in BROKER_CONFIGS and _number(values[name]) > _number(broker[most]):
            return f"{name}={overrides[name]} must not be greater than {most}={broker[most]}"
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        changed = heartbeat in overrides or session in overrides
        if changed and _number(values[heartbeat]) >= _number(values[session]):
            return f"{heartbeat}={values[heartbeat]} must be less than {session}={values[session]}"
    return None


def _number(value: Value) -> int:
    assert isinstance(value, int), value
    return value
