"""The one table of configs and everything that is decided from it alone.

table (facts) <- parse, validators (text and values) <- resolve (which layer wins) <- describe, alter (the admin APIs).
Owns no value and no file: layers of settings come in as mappings of text.
"""

from __future__ import annotations

from tidelog.metadata.config.key import ConfigError, ConfigKey, Password, Scope, Value
from tidelog.metadata.config.parse import parse, to_text
from tidelog.metadata.config.resolve import BrokerValues, effective_group_values, effective_topic_values
from tidelog.metadata.config.table import BROKER_CONFIGS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS

__all__ = [
    "BROKER_CONFIGS",
    "CLIENT_METRICS_CONFIGS",
    "GROUP_CONFIGS",
    "TOPIC_CONFIGS",
    "BrokerValues",
    "ConfigError",
    "ConfigKey",
    "Password",
    "Scope",
    "Value",
    "effective_group_values",
    "effective_topic_values",
    "parse",
    "to_text",
]
