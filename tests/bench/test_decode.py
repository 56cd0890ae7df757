"""`./dev bench decode`, in small: its logs are what it says, its table is whole, a miss is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.decode import Figure, Point, make_log, misses
from tidelog.protocol.batch import iter_headers
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import decode


def test_every_point_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "decode.json"
    assert main(["decode", "--bytes", "100000", "--seconds", "0", "--codecs", "none,zstd", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 2 * 2 * 2 * 4
    assert all(row["decode_per_s"] > 0 and row["arrow_per_s"] > 0 and row["encode_per_s"] > 0 for row in rows)
    assert "| pure | zstd | 10,000 | 3 |" in capsys.readouterr().out


@pytest.mark.parametrize("size", [10, 100, 1000, 10_000])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_log_of_batches_as_producers_make_them(size: int, codec: Codec) -> None:
    log, count = make_log(Point("pure", codec, size, 3), 200_000)
    columns = decode(log, twin="pure")
    assert columns.count == count
    assert set(columns.value_size.tolist()) == {size}
    assert columns.header_first[count] == 3 * count
    headers = [header for _, header in iter_headers(log)]
    assert {header.codec for header in headers} == {codec}
    if codec is Codec.NONE:
        assert max(header.size for header in headers) <= 20_000


def test_a_miss_is_named() -> None:
    def figure(size: int, rate: float) -> Figure:
        return Figure(Point("native", Codec.NONE, size, 0), 1, 1, 1, rate, rate, rate)

    assert misses([figure(1000, 1e6), figure(100, 5e6), figure(10, 1.0)]) == []
    assert misses([figure(1000, 9e5), figure(100, 4e6)]) == [
        "1000 B: 900,000 records/s, at least 1,000,000 are asked for",
        "100 B: 4,000,000 records/s, at least 5,000,000 are asked for",
    ]
