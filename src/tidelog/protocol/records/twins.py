"""Which of the two implementations does the work, and the one place that loads them.

numba takes a third of a second to import and, the first time on a machine, seconds to compile: nothing is loaded
before it is asked for.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tidelog.protocol.records.columns import TwinName

_LOG = logging.getLogger(__name__)


@cache
def chosen_twin() -> TwinName:
    """native when numba can be loaded, which this does; else pure."""
    if find_spec("numba") is None:
        return "pure"
    try:
        import_module("tidelog.protocol.records.native_decode")
    except ImportError as error:
        # A numba that does not fit its numpy says so like this.
        _LOG.warning("numba is installed but does not load, so records are decoded in plain Python: %s", error)
        return "pure"
    return "native"


def module(kind: str, twin: TwinName) -> Any:
    """The module that does one kind of work (decode, arrow, encode) for a twin."""
    return import_module(f"tidelog.protocol.records.{twin}_{kind}")
