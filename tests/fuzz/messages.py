"""Random requests of every API and version, made from the codec's own facts: what a version has, with values that mean
something to the node under test now and then, and edges otherwise."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from crc32c import crc32c
from msgspec import Struct

from tidelog.broker.registry import registered_apis
from tidelog.protocol.apis import APIS
from tidelog.protocol.batch import CRC_OFFSET, RecordInput, build_batch
from tidelog.protocol.codec import schema_of
from tidelog.protocol.compression import Codec
from tidelog.protocol.schema import Field, MessageSchema, StructSchema

INT_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
TOPICS = ("fuzz-plain", "fuzz-compact", "fuzz-zstd", "fuzz-append-time")
"""Made by the fuzzer before it starts, each with its own way through validation."""
GROUPS = ("fuzz-group", "fuzz-other", "")
ODD_NAMES = (
    "../../etc/passwd",
    ".",
    "..",
    "a\x00b",
    "\n\x1b[31mred",
    "é" * 300,
    "x" * 32767,
    "😀",
    "__consumer_offsets",
    "a.b",
    "a_b",
)
CONFIGS = ("retention.ms", "cleanup.policy", "compression.type", "segment.bytes", "no.such.config", "max.message.bytes")
VALUES = ("1", "-1", "abc", "compact", "zstd", "1048576", "")
PROTOCOLS = ("consumer", "range", "roundrobin")
CASES = [(api.key, version) for api in registered_apis() for version in api.versions]
MAY_WAIT = {1, 11, 14}
"""Fetch, JoinGroup, SyncGroup: an answer may be long in coming."""


class Messages:
    def __init__(self, random: Random, topic_ids: list[bytes]) -> None:
        self._random = random
        self._topic_ids = topic_ids
        self._member_ids = ["", "member"]

    def request(self, key: int, version: int) -> Struct:
        shape: Any = APIS[key].request_class()
        schema = schema_of(shape)
        return self._struct(schema, schema.root, shape, version)

    def _struct(self, message: MessageSchema, own: StructSchema, shape: Any, version: int) -> Struct:
        present = [field for field in own.fields if field.versions.has(version) or field.tagged.has(version)]
        values = {field.name: self._field(message, field, shape, version) for field in present}
        made: Struct = shape(**values)
        return made

    def _field(self, message: MessageSchema, field: Field, shape: Any, version: int) -> Any:
        random = self._random
        if field.nullable.has(version) and random.random() < 0.15:
            return None
        if field.is_array:
            count = random.choice((0, 1, 1, 1, 2, 3)) if random.random() < 0.98 else random.randrange(50)
            return [self._value(message, field, shape, version) for _ in range(count)]
        return self._value(message, field, shape, version)

    def _value(self, message: MessageSchema, field: Field, shape: Any, version: int) -> Any:
        if field.is_struct:
            outer: Any = shape
            while not hasattr(outer, field.type):
                outer = self._outer(message)
            return self._struct(message, message.structs[field.type], getattr(outer, field.type), version)
        random = self._random
        match field.type:
            case "bool":
                return random.random() < 0.5
            case "float64":
                return random.choice((0.0, -1.5, 1e300, float("nan")))
            case "string":
                return self.text(field.name)
            case "bytes":
                return random.randbytes(random.choice((0, 1, 8, 100)))
            case "records":
                return self.batch()
            case "uuid":
                return random.choice((*self._topic_ids, bytes(16), random.randbytes(16)))
            case _:
                return self._number(field)

    def _outer(self, message: MessageSchema) -> Any:
        assert message.api_key is not None
        return APIS[message.api_key].request_class()

    def text(self, name: str) -> str:
        random = self._random
        if random.random() < 0.05:
            return random.choice(ODD_NAMES)
        if name in ("topic", "name", "topic_name") or "topic" in name:
            return random.choice((*TOPICS, *TOPICS, *CONFIGS, *PROTOCOLS))
        if "group" in name or name in ("key", "coordinator_keys"):
            return random.choice(GROUPS)
        if "member" in name:
            return random.choice(self._member_ids)
        if "resource_name" in name:
            return random.choice((*TOPICS, "", "no-such"))
        if "value" in name:
            return random.choice(VALUES)
        return random.choice((*PROTOCOLS, *CONFIGS, "", "abc"))

    def _number(self, field: Field) -> int:
        random = self._random
        bits = INT_BITS[field.type]
        low, high = (0, 2**bits - 1) if field.type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if random.random() < 0.08:
            return random.choice((low, high, low + 1, high - 1))
        if field.name == "num_partitions" or field.name == "count":
            return random.choice((-1, 0, 1, 2, 5))
        if "timeout" in field.name or "wait" in field.name:
            return random.choice((0, 1, 50, 10_000))
        if field.name.endswith("max_bytes") or "bytes" in field.name:
            return max(min(random.choice((0, 1, 1000, 1 << 20, 1 << 30)), high), low)
        return max(min(random.choice((0, 0, 0, 1, 1, 2, -1, -2, 3, 100)), high), low)

    def batch(self) -> bytes:
        random = self._random
        records = [
            RecordInput(
                random.choice((None, b"", b"k", random.randbytes(10))),
                random.choice((None, b"", bytes(random.randrange(3000)), random.randbytes(random.randrange(50)))),
                random.choice((1_700_000_000_000, 0, -1, 2**62)) if random.random() < 0.1 else 1_700_000_000_000,
                ((random.choice(("h", "")), random.choice((None, b"v"))),) * random.choice((0, 0, 1, 3)),
            )
            for _ in range(random.choice((1, 1, 2, 10)))
        ]
        idempotent = random.random() < 0.3
        batch = build_batch(
            records,
            codec=random.choice((Codec.NONE, Codec.NONE, *Codec)),
            producer_id=random.randrange(3) if idempotent else -1,
            producer_epoch=random.choice((0, 0, 1)) if idempotent else -1,
            base_sequence=random.choice((0, 0, 1, 2**31 - 1)) if idempotent else -1,
        )
        if random.random() < 0.5:
            return bytes(batch)
        return self._spoiled(batch)

    def _spoiled(self, batch: bytearray) -> bytes:
        """Bytes changed behind the header or in it, most often with a CRC that says all is well."""
        random = self._random
        for _ in range(random.choice((1, 1, 2, 5))):
            if len(batch) > 22:
                batch[random.randrange(len(batch))] = random.choice((0, 0xFF, 0x7F, 0x80, random.randrange(256)))
        cut = random.random()
        if cut < 0.1:
            del batch[random.randrange(len(batch)) :]
        elif cut < 0.2:
            batch += bytes(batch) if random.random() < 0.5 else random.randbytes(9)
        if len(batch) >= 61 and random.random() < 0.8:
            struct.pack_into(">i", batch, 8, len(batch) - 12)
            batch[16] = 2
            struct.pack_into(">I", batch, CRC_OFFSET, crc32c(memoryview(batch)[21:]))
        return bytes(batch)
