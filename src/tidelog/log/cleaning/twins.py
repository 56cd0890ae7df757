"""The two ways to do the loops of a cleaning: native where numba is there (the extra `fast`), in plain Python
elsewhere. Both give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tidelog.protocol.records import Batches, Columns, Scratch, TwinName, chosen_twin, decode_scanned
from tidelog.protocol.records.twins import module


class Twin:
    """One of them, for one cleaning."""

    def __init__(self, name: TwinName | None = None) -> None:
        self.name = name or chosen_twin()
        self.loops: Any = import_module(f"tidelog.log.cleaning.{self.name}_loops")
        self._records = module("decode", self.name)
        self._scratch = Scratch()

    def wrong_crc(self, data: memoryview, batches: Batches) -> int:
        """The first batch whose content is not what it was, -1 when there is none."""
        row: int = self._records.wrong_crc(data, batches)
        return row

    def decode(self, data: memoryview, batches: Batches, rows: Sequence[int], limit_bytes: int) -> Columns:
        """The records of some batches, in room that the next call uses again."""
        if len(rows) < batches.count:
            batches = self._records.select(batches, rows)
        return decode_scanned(data, batches, limit_bytes=limit_bytes, twin=self.name, scratch=self._scratch)
