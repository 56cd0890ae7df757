"""`./dev bench decode`: how many records a core decodes a second, over sizes, headers, codecs and both twins.

Rates are per second of CPU of the one thread that works, the best of several rounds: a busy machine disturbs them
little. Batches are as large as the Java producer makes them. No broker, no Apache Kafka.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.frames import BATCH_BYTES
from bench.results import commit, machine
from tidelog.protocol.batch import RecordInput, build_batch
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import Columns, TwinName, decode, encode
from tidelog.protocol.records.twins import module

SIZES = (10, 100, 1000, 10_000)
HEADERS = (0, 3)
TWINS: tuple[TwinName, ...] = ("native", "pure")
TARGETS = {(1000, 0, "none"): 1_000_000, (100, 0, "none"): 5_000_000}
"""Records/s that the native decoder owes, with CRC."""


class Point(NamedTuple):
    twin: TwinName
    codec: Codec
    size: int
    headers: int


class Figure(NamedTuple):
    """Records and MB of records a second: decoded, decoded to Arrow, and encoded again."""

    point: Point
    records: int
    log_bytes: int
    plain_bytes: int
    decode_per_s: float
    arrow_per_s: float
    encode_per_s: float

    def mb(self, per_s: float) -> float:
        return per_s * self.plain_bytes / self.records / 1e6


def make_log(point: Point, log_bytes: int) -> tuple[bytes, int]:
    """Batches of 16 KB before compression, and the number of records. Values are words, which compress about as logs
    and events do."""
    chance = random.Random(point.size)
    words = [bytes(chance.choices(range(97, 123), k=chance.randrange(3, 9))) for _ in range(500)]
    headers = [(f"header-{number}", b"some content") for number in range(point.headers)]
    each = max(1, BATCH_BYTES // (point.size + 12 + 24 * point.headers))
    variants = []
    for variant in range(8):
        inputs = []
        for number in range(each):
            text = b" ".join(chance.choices(words, k=point.size // 4 + 2))[: point.size]
            inputs.append(RecordInput(b"key-%06d" % number, text, 1_700_000_000_000 + variant, headers))
        variants.append(bytes(build_batch(inputs, codec=point.codec)))
    plain = each * (point.size + 20 + 24 * point.headers)
    count = max(1, log_bytes // plain)
    return b"".join(variants[number % 8] for number in range(count)), each * count


def best_cpu_s(work: Callable[[], object], seconds: float) -> float:
    """Of the calls that fit into so much CPU; at least two."""
    best = float("inf")
    spent = 0.0
    calls = 0
    while spent < seconds or calls < 2:
        started = time.thread_time()
        work()
        took = time.thread_time() - started
        best, spent, calls = min(best, took), spent + took, calls + 1
    return best


def measure(point: Point, log_bytes: int, seconds: float) -> Figure:
    log, records = make_log(point, log_bytes if point.twin == "native" else log_bytes // 8)
    columns = decode(log, twin=point.twin)
    assert columns.count == records
    again = ascending(columns)

    def rate(work: Callable[[], Any]) -> float:
        return records / best_cpu_s(work, seconds)

    return Figure(
        point=point,
        records=records,
        log_bytes=len(log),
        plain_bytes=_plain_bytes(columns),
        decode_per_s=rate(lambda: decode(log, twin=point.twin)),
        arrow_per_s=rate(lambda: decode(log, twin=point.twin).to_arrow(topic="t", partition=0)),
        encode_per_s=rate(lambda: encode(again, batch_bytes=BATCH_BYTES, codec=point.codec)),
    )


def _plain_bytes(columns: Columns) -> int:
    return sum(columns.end.tolist()) - sum(columns.start.tolist())


def ascending(columns: Columns) -> Columns:
    """Every batch of the log begins at 0; the encoder wants offsets that ascend."""
    return replace(columns, offset=module("decode", columns.twin).column(range(columns.count)))


def points(twins: tuple[TwinName, ...], codecs: tuple[Codec, ...]) -> Iterator[Point]:
    for twin in twins:
        for codec in codecs:
            for headers in HEADERS:
                for size in SIZES:
                    yield Point(twin, codec, size, headers)


def render(figures: list[Figure]) -> str:
    titles = (
        "twin",
        "codec",
        "bytes",
        "headers",
        *(f"{what} records/s | MB/s" for what in ("decode", "to Arrow", "encode")),
    )
    lines = [f"| {' | '.join(titles)} |", "|---" * 10 + "|"]
    for one in figures:
        rates = (one.decode_per_s, one.arrow_per_s, one.encode_per_s)
        cells = " | ".join(f"{rate:,.0f} | {one.mb(rate):,.0f}" for rate in rates)
        point = one.point
        lines.append(f"| {point.twin} | {point.codec.name.lower()} | {point.size:,} | {point.headers} | {cells} |")
    return "\n".join(lines)


def misses(figures: list[Figure]) -> list[str]:
    found = []
    for one in figures:
        target = TARGETS.get((one.point.size, one.point.headers, one.point.codec.name.lower()))
        if one.point.twin == "native" and target is not None and one.decode_per_s < target:
            found.append(f"{one.point.size} B: {one.decode_per_s:,.0f} records/s, at least {target:,} are asked for")
    return found


def run_decode(
    twins: tuple[TwinName, ...], codecs: tuple[Codec, ...], log_bytes: int, seconds: float, path: Path | None
) -> int:
    figures = []
    for point in points(twins, codecs):
        figures.append(measure(point, log_bytes, seconds))
        print(render(figures[-1:]).splitlines()[-1], flush=True)
    print(f"\n{render(figures)}")
    for miss in misses(figures):
        print(f"missed: {miss}")
    if path is not None:
        rows = [{**one._asdict(), "point": one.point._asdict()} for one in figures]
        path.write_text(json.dumps({"machine": machine(), "commit": commit(), "rows": rows}, indent=1) + "\n")
    return 0
