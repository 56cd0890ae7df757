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
_FLAGS_PER_KEY: Final = 4
"""What the flags may take: a sixth of what the native map may."""


def entry_bytes() -> int:
    """What a key takes. (Asked in the node, which loads no numba: the helper does.)"""
    return _NATIVE_ENTRY_BYTES if find_spec("numba") is not None else _PURE_ENTRY_BYTES


class Keys:
    def __init__(self, seed: bytes, keys_max: int, twin: TwinName | None = None) -> None:
        module: Any = import_module(f"tidelog.log.cleaning.{twin or chosen_twin()}_keys")
        self._map = module.KeyMap(seed, keys_max)
        self._flags_max = keys_max * _FLAGS_PER_KEY
        self.kept_rows = module.kept_rows
        self.latest_offset = -1
        """All keys up to this offset are in here."""
        self.flags = bytearray()
        """A byte for each offset from the first one on: 1 where the last record of a key is. Empty when unknown."""
        self.flags_from = 0

    def __len__(self) -> int:
        return len(self._map)

    def put(self, columns: Columns, wanted: Sequence[bool], first_offset: int) -> int:
        """Take in the keys of the batches that are wanted, from the offset on. How many batches were looked at: with a
        full map it ends before the next one that is wanted."""
        taken: int = self._map.put(columns, wanted, first_offset)
        return taken

    def settle(self, first_offset: int) -> None:
        """All are in, from this offset on. Which of the records that were put are the last of their key is now known by
        their offsets: most batches need not be looked into again. Not where that takes too much memory."""
        span = self.latest_offset + 1 - first_offset
        if 0 < span <= self._flags_max:
            self.flags, self.flags_from = bytearray(span), first_offset
            self._map.flag(self.flags, first_offset)

    def may_have_last(self, first_offset: int, last_offset: int) -> bool:
        """Whether the last record of a key can be between the two."""
        if first_offset < self.flags_from or last_offset - self.flags_from >= len(self.flags):
            return True
        return self.flags.find(1, first_offset - self.flags_from, last_offset + 1 - self.flags_from) >= 0

    def last_of_key(self, columns: Columns) -> Any:
        """For each record whether no later one of its key is known; not for one without a key."""
        return self._map.last_of_key(columns, self.flags, self.flags_from)
