"""The configs of GROUP resources as the group coordinator sees them: the group's own, within what the broker allows."""

from __future__ import annotations

from typing import Final

from tidelog.coordinator.group.consumer_config import ConsumerGroupConfig
from tidelog.metadata.config import Value, effective_group_values
from tidelog.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, MetadataDelta, MetadataImage
from tidelog.metadata.live_config import LiveConfig
from tidelog.metadata.publisher import MetadataPublisher

_NAMES: Final = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


class GroupConfigs:
    """Asked at each heartbeat: what was worked out is kept until a config changes. Groups that were given none of their
    own, which is all but a few, share one answer."""

    def __init__(self, publisher: MetadataPublisher, config: LiveConfig) -> None:
        self._publisher = publisher
        self._config = config
        self._of_all: ConsumerGroupConfig | None = None
        self._of_group: dict[str, ConsumerGroupConfig] = {}

    def __call__(self, group_id: str) -> ConsumerGroupConfig:
        image = self._publisher.image
        if (GROUP_RESOURCE, group_id) not in image.configs:
            if self._of_all is None:
                self._of_all = self._resolved(image, None)
            return self._of_all
        found = self._of_group.get(group_id)
        if found is None:
            found = self._of_group[group_id] = self._resolved(image, group_id)
        return found

    def on_delta(self, delta: MetadataDelta) -> None:
        if any(resource_type in (BROKER_RESOURCE, GROUP_RESOURCE) for resource_type, _ in delta.configs):
            self._of_all = None
            self._of_group.clear()

    def _resolved(self, image: MetadataImage, group_id: str | None) -> ConsumerGroupConfig:
        overrides = {} if group_id is None else image.config(GROUP_RESOURCE, group_id)
        values = effective_group_values(overrides, self._config.values)
        return ConsumerGroupConfig(
            *(self._bounded(name, values[f"consumer.{name}"], f"consumer.{name}" in overrides) for name in _NAMES)
        )

    def _bounded(self, name: str, value: Value, is_own: bool) -> int:
        """The bounds are checked when a config is set; the broker may have been given others since."""
        assert isinstance(value, int), name
        if not is_own:
            return value
        least = self._config.integer(f"group.consumer.min.{name}")
        most = self._config.integer(f"group.consumer.max.{name}")
        return max(least, min(value, most))
