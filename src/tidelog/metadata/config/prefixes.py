"""Names that carry more than the table holds: listener.name.<listener>.<config> and settings passed on to plug-ins."""

from __future__ import annotations

import re

_LISTENER = r"listener\.name\.[^.]+\.(.+)"
# listener.name.<listener>.<sasl mechanism>.<config> exists for these only.
_MECHANISM_CONFIGS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_PASSED_ON = ("rsm.config.", "rlmm.config.", "config.providers.")


def base_name(name: str) -> str:
    """The config that a listener's own setting is a form of; the name itself for every other."""
    match = re.fullmatch(_LISTENER, name)
    if match is None:
        return name
    for config in _MECHANISM_CONFIGS:
        if match[1].endswith("." + config):
            return config
    return match[1]


def is_passed_on(name: str) -> bool:
    """A setting of a plug-in, which only the plug-in can check."""
    return name.startswith(_PASSED_ON)
