"""Answers that end with a long list, encoded in slices: fifty thousand entries take a tenth of a second."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tidelog.broker.context import Encoded, Parked, RequestContext
from tidelog.coordinator.chores import Work
from tidelog.protocol.codec import encode
from tidelog.protocol.source import write_uvarint

SLICE: Final = 500
_NO_TAGS: Final = b"\x00"
_EMPTY: Final = b"\x01" + _NO_TAGS
"""How a flexible message ends whose last field is a list without entries."""


def answer_in_slices(ctx: RequestContext, parked: Parked, response: Struct, field: str) -> None:
    """`field` is the last one of the response, and a list."""

    def answering() -> Work[None]:
        body = yield from encode_in_slices(response, ctx.version, field)
        parked.answer(Encoded(body))

    ctx.services.transaction_coordinator.runtime.chores.begin(answering())


def encode_in_slices(response: Struct, version: int, field: str) -> Work[bytes]:
    """What `encode` gives: the head, the count, and the entries of one message for each slice of them."""
    entries = getattr(response, field)
    setattr(response, field, [])
    head = encode(response, version)
    assert head.endswith(_EMPTY), f"{type(response).__name__} v{version} does not end with {field}"
    parts = [head[: -len(_EMPTY)], write_uvarint(len(entries) + 1)]
    for start in range(0, len(entries), SLICE):
        some = entries[start : start + SLICE]
        setattr(response, field, some)
        skipped = len(head) - len(_EMPTY) + len(write_uvarint(len(some) + 1))
        parts.append(encode(response, version)[skipped : -len(_NO_TAGS)])
        yield 3 * len(some)
    setattr(response, field, entries)
    return b"".join([*parts, _NO_TAGS])
