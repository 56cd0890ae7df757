"""Every API that is served: the folder `apis/` is the list, and ApiVersions is derived from it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

from tidelog.broker import apis
from tidelog.broker.api import Api


def registered_apis() -> list[Api]:
    """By key; each node gets its own, because they count."""
    found: list[Api] = []
    for module in iter_modules(apis.__path__):
        api: Api = import_module(f"{apis.__name__}.{module.name}").API
        found.append(replace(api))
    return sorted(found, key=lambda api: api.key)
