"""What Tidelog adds to Kafka's table or sets differently. docs/differences.md gives the reason for each default."""

from __future__ import annotations

from tidelog.metadata.config.key import ConfigKey

OWN_CONFIGS: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="tidelog.acls.unenforced.allow",
        scope="broker",
        type="boolean",
        default="false",
        validator="-",
        importance="high",
        update_mode="read-only",
    ),
    ConfigKey(
        name="tidelog.http.listener",
        scope="broker",
        type="string",
        default="127.0.0.1:9308",
        validator="host-port",
        importance="medium",
        update_mode="read-only",
    ),
    ConfigKey(
        name="tidelog.sync.mode",
        scope="broker",
        type="string",
        default="synced",
        validator="in page-cache|synced",
        importance="high",
        update_mode="read-only",
    ),
    ConfigKey(
        name="tidelog.queued.max.response.bytes",
        scope="broker",
        type="long",
        default="134217728",
        validator="range 1048576 *",
        importance="medium",
        update_mode="read-only",
    ),
)

DEFAULTS: dict[str, str | None] = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "advertised.listeners": "auto",
    "controller.listener.names": "CONTROLLER",
    "log.dir": "tidelog-data",
    "socket.listen.backlog.size": "1024",
    "socket.receive.buffer.bytes": "-1",
}
"""Broker configs whose default is not Kafka's."""
