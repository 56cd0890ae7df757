"""`./dev bench payloads`: how many records a core turns into typed columns a second, and back, by format.

Rates are per second of CPU of the one thread that works, the best of several rounds, on batches of Spark's size. No
Spark, no registry: what Spark adds is its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pyarrow as pa

from bench.results import commit, machine
from tidelog.spark.payload.decoding import Decoder, DecodeSpec
from tidelog.spark.payload.encoding import Encoder, EncodeSpec
from tidelog.spark.payload.schema import Schema

_FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "user", "type": "string"},
    {"name": "price", "type": "double"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "note", "type": ["null", "string"]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": _FIELDS})
EVOLVED = json.dumps(
    {"type": "record", "name": "Order", "fields": [*_FIELDS, {"name": "more", "type": "long", "default": 0}]}
)
JSON = json.dumps(
    {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "user": {"type": "string"},
            "price": {"type": "number"},
            "at": {"type": "integer"},
            "note": {"type": ["null", "string"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
)
PROTOBUF = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; string user = 2; double price = 3; google.protobuf.Timestamp at = 4; optional string note = 5;
  repeated string tags = 6;
}
"""
SCHEMAS = {"avro": AVRO, "json": JSON, "protobuf": PROTOBUF}


def run_payloads(rows: int, seconds: float) -> int:
    print(f"{machine()['processor']}, commit {commit()}; batches of {rows:,}; records a second of CPU, one thread")
    print(f"{'format':<22} {'bytes':>6} {'decode':>10} {'encode':>10}")
    for format, text in SCHEMAS.items():
        schema = Schema(format, text, id=1)
        encoder, decoder = Encoder(EncodeSpec(schema)), Decoder(DecodeSpec(schema))
        values = pa.array([_row(number, format) for number in range(rows)], encoder.arrow_type)
        records = encoder.encode(values)
        size = sum(map(len, records.to_pylist())) // rows
        decode = _rate(rows, lambda: decoder.decode(records), seconds)  # noqa: B023
        encode = _rate(rows, lambda: encoder.encode(values), seconds)  # noqa: B023
        print(f"{format:<22} {size:>6} {decode:>10,.0f} {encode:>10,.0f}")
        if format == "avro":
            print(f"{'avro, evolved':<22} {size:>6} {_evolved(records, seconds):>10,.0f}")
    return 0


def _row(number: int, format: str) -> dict[str, object]:
    at = 1_700_000_000_000 + number
    return {
        "id": number * 1000,
        "user": f"user-{number:06}",
        "price": number / 7,
        "at": at if format == "json" else at * 1000,
        "note": None if number % 2 else "a note of some words",
        "tags": ["red", "large"][: number % 3],
    }


def _evolved(records: pa.Array, seconds: float) -> float:
    """A writer's schema that is not the reader's, as it is for most of a topic after a change."""
    from tidelog.spark.payload.avro.reading import AvroReader

    reader = AvroReader(Schema("avro", EVOLVED))
    parse = reader.parser(Schema("avro", AVRO))
    bodies = [record[5:] for record in records.to_pylist()]
    return _rate(len(bodies), lambda: reader.build([parse(body) for body in bodies]), seconds)


def _rate(rows: int, work: Callable[[], object], seconds: float) -> float:
    best, spent = float("inf"), 0.0
    while spent < seconds or best == float("inf"):
        started = time.thread_time()
        work()
        took = time.thread_time() - started
        best, spent = min(best, took), spent + took
    return rows / best
