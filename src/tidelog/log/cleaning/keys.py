"""The keys of the dirty part of a log and the last offset of each: native where numba is there (the extra `fast`), in
plain Python elsewhere. Both do the same."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from tidelog.protocol.records import Columns, TwinName, chosen_twin

_NATIVE_ENTRY_BYTES: Final = 24
_PURE_ENTRY_BYTES: Final = 200
"""A dictionary, with an object for the hash and one for the offset."""


def entry_bytes() -> int:
    """What a key takes. (Asked in the node, which loads no numba: the helper does.)"""
    return _NATIVE_ENTRY_BYTES if find_spec("numba") is not None else _PURE_ENTRY_BYTES


class Keys:
    def __init__(self, seed: bytes, keys_max: int, twin: TwinName | None = None) -> None:
        module: Any = import_module(f"tidelog.log.cleaning.{twin or chosen_twin()}_keys")
        self._map = module.KeyMap(seed, keys_max)
        self.kept_rows = module.kept_rows
        self.latest_offset = -1
        """All keys up to this offset are in here."""

    def __len__(self) -> int:
        return len(self._map)

    def put(self, columns: Columns, wanted: Sequence[bool], first_offset: int) -> int:
        """Take in the keys of the batches that are wanted, from the offset on. How many batches were looked at: with a
        full map it ends before the next one that is wanted."""
        taken: int = self._map.put(columns, wanted, first_offset)
        return taken

    def last_of_key(self, columns: Columns) -> Any:
        """For each record whether no later one of its key is known; not for one without a key."""
        return self._map.last_of_key(columns)
