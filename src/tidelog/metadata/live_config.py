"""The broker's configuration as it is now: what the node was started with, under what was set since at run time."""

from __future__ import annotations

from tidelog.metadata.config import BrokerValues, ConfigError, parse
from tidelog.metadata.config.table import BROKER_CONFIGS
from tidelog.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, MetadataDelta


class LiveConfig:
    def __init__(self, static: BrokerValues, node_id: int) -> None:
        self.values = static
        self._own_name = str(node_id)

    def on_delta(self, delta: MetadataDelta) -> None:
        if any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.configs):
            image = delta.after
            self.values = self.values.with_dynamic(
                image.config(BROKER_RESOURCE, self._own_name), image.config(BROKER_RESOURCE, CLUSTER_DEFAULT)
            )

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        value = self.values[name]
        assert isinstance(value, int | float), name
        return value

    def for_listener(self, listener: str, name: str) -> int | None:
        """What listener.name.<listener>.<name> says, None where nobody set it."""
        text = self.values.text(f"listener.name.{listener.lower()}.{name}")
        if text is None:
            return None
        try:
            value = parse(BROKER_CONFIGS[name], text)
        except ConfigError:  # another release, with other rules, stored it
            return None
        assert isinstance(value, int), name
        return value

    def boolean(self, name: str) -> bool:
        return bool(self.values[name])
