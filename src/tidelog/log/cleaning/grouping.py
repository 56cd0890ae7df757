"""Which segments become one: as many neighbours as fit into a segment, its indexes and the reach of their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.log.cleaning.order import Source
from tidelog.log.index import OFFSET_ENTRY, TIME_ENTRY

_RELATIVE_OFFSET_MAX: Final = 2**31 - 1


def grouped(sources: Sequence[Source], *, segment_bytes: int, segment_index_bytes: int) -> list[list[Source]]:
    """Measured before cleaning: what they shrink to is not known yet, and a group must fit even if they do not."""
    groups: list[list[Source]] = []
    for source in sources:
        if groups and _fits(groups[-1], source, segment_bytes, segment_index_bytes):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(group: list[Source], source: Source, segment_bytes: int, segment_index_bytes: int) -> bool:
    together = [*group, source]
    return (
        sum(each.size for each in together) <= segment_bytes
        and sum(each.index_entries for each in together) * OFFSET_ENTRY.size <= segment_index_bytes
        and sum(each.time_index_entries for each in together) * TIME_ENTRY.size <= segment_index_bytes
        and source.end_offset - 1 - group[0].base_offset <= _RELATIVE_OFFSET_MAX
    )
