"""KAFKA_... environment variables as settings, by the rules of Apache Kafka's own image."""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "KAFKA_"
_NOT_SETTINGS = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPT",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
    }
)
"""Variables of the image that steer the JVM, its logging and its JMX port."""


def config_name(variable: str) -> str:
    """KAFKA_LOG_DIRS is log.dirs; two underscores are an underscore, three a hyphen."""
    return variable.removeprefix(PREFIX).lower().replace("_", ".").replace("...", "-").replace("..", "_")


def settings(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Variable to value for those that are settings, and the names of those that are for a JVM."""
    ours = {name: value for name, value in sorted(environ.items()) if name.startswith(PREFIX) and name != PREFIX}
    ignored = [name for name in ours if name in _NOT_SETTINGS]
    return {name: value for name, value in ours.items() if name not in _NOT_SETTINGS}, ignored
