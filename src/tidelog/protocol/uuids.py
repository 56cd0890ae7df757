"""Kafka's uuids: 16 raw bytes in memory and on the wire, 22 characters of unpadded base64url in text."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from random import Random

ZERO_UUID = bytes(16)
ONE_UUID = bytes(15) + b"\x01"
METADATA_TOPIC_ID = ONE_UUID
# The first hundred values name reserved directories (unassigned, lost, migrating) in Kafka's metadata.
_RESERVED_BELOW = 100
# The decoder of the standard library skips what is not in its alphabet.
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def uuid_to_text(value: bytes) -> str:
    if len(value) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
    return urlsafe_b64encode(value).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> bytes:
    """Raises ValueError for anything but 22 characters of base64url."""
    if len(text) != 22 or not _ALPHABET.issuperset(text):
        raise ValueError(f"not a uuid of 22 base64url characters: {text!r}")
    return urlsafe_b64decode(text + "==")


def random_uuid(random: Random) -> bytes:
    """A version 4 uuid as Kafka makes them: its text never starts with a dash, which tools take for an option."""
    while True:
        value = bytearray(random.randbytes(16))
        value[6] = (value[6] & 0x0F) | 0x40
        value[8] = (value[8] & 0x3F) | 0x80
        if not uuid_to_text(bytes(value)).startswith("-") and int.from_bytes(value, "big") >= _RESERVED_BELOW:
            return bytes(value)
