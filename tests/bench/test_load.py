"""The load generator against a real node, in small: its frames are understood, its errors seen, its figures whole."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench import frames, generator, node, topics
from bench.__main__ import main
from bench.catalogue import chosen
from bench.lab import Lab
from bench.node import Bench, Settings
from bench.results import read
from bench.row import Figures, Run, key_of
from tidelog.protocol.frame import encode_response
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.produce import ProduceResponse

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CPU and memory come from /proc")

ID = bytes(range(16))
TINY = Settings(runs=1, warm_ups=1, bytes=200_000, seconds=0.2)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(with_apache=False) as lab:
        lab.no_java = "not in this test"
        yield lab


def error_at(answer: bytes, check: int) -> int:
    return int.from_bytes(answer[4 + check : 6 + check], "big")


def test_the_error_of_an_answer_is_where_the_generator_looks() -> None:
    part = ProduceResponse.PartitionProduceResponse(index=7, error_code=3)
    topic = ProduceResponse.TopicProduceResponse(topic_id=ID, partition_responses=[part])
    answer = encode_response(ProduceResponse(responses=[topic]), frames.PRODUCE_VERSION, 1)
    assert error_at(answer, frames.produce(ID, (0,), 100).check) == 3
    data = FetchResponse.PartitionData(partition_index=7, error_code=3, records=b"")
    fetched = FetchResponse.FetchableTopicResponse(topic_id=ID, partitions=[data])
    answer = encode_response(FetchResponse(responses=[fetched]), frames.FETCH_VERSION, 1)
    assert error_at(answer, frames.fetch(ID, 1000, 1, 1).check) == 3


@pytest.mark.parametrize("size", [100, 1000, 10_000])
def test_a_batch_is_as_large_as_the_java_producer_would_make_it(size: int) -> None:
    batch, _ = frames.batch_of(size)
    assert len(batch) <= frames.BATCH_BYTES
    assert len(batch) + size + 20 > frames.BATCH_BYTES
    other, _ = frames.batch_of(size, variant=1)
    assert len(other) == len(batch)
    assert other != batch


@pytest.fixture(autouse=True)
def nothing_is_stolen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host of this machine must not decide how many runs there are."""
    monkeypatch.setattr(node, "stolen_s", lambda: 0.0)


@pytest.mark.parametrize("native", [True, False], ids=["C", "Python"])
def test_both_generators_send_what_is_asked_and_see_errors(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    if native and not generator.is_native():
        pytest.skip("no C compiler")
    if not native:
        monkeypatch.setattr(generator, "program", lambda: [sys.executable, "-m", "bench.replay_twin"])
    address = lab.broker("tidelog").address
    topic = lab.fresh_name()
    made = frames.produce(topics.create(address, topic, 3), range(3), 100)
    found = generator.replay(address, made, connections=2, depth=3, start=1, step=1, seconds=20, requests=50)
    assert found["requests"] == 50
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["p999_ms"] <= found["max_ms"] * 1.01
    assert found["bytes_out"] == 50 * int.from_bytes(made.data[:4], "big") + 50 * 4
    with pytest.raises(RuntimeError, match="5 of 5 requests failed, first with 100"):
        generator.replay(address, frames.produce(ID, (0,), 100), seconds=20, requests=5)


@pytest.mark.parametrize("name", ["produce-1k", "consume-1k", "ping"])
def test_a_row_is_measured(lab: Lab, name: str) -> None:
    if not generator.is_native():
        pytest.skip("no C compiler")
    (row,) = chosen(name)
    found = Bench(lab, TINY).measure(row)
    assert found["errors"] == {}
    assert len(found["cells"]) == len(row.points)
    for runs in found["cells"].values():
        assert len(runs) == TINY.runs
        assert set(row.shows) <= set(runs[0])
        assert runs[0]["records_per_s"] > 0


def test_the_floor_is_measured(lab: Lab) -> None:
    (row,) = chosen("floor")
    found = Bench(lab, TINY).measure(row)
    assert found["errors"] == {}
    assert len(found["cells"]) == 4


def test_a_side_that_fails_is_named_and_the_others_go_on(lab: Lab) -> None:
    (row,) = chosen("floor")

    asked: Counter[str] = Counter()

    def measure(run: Run) -> Figures:
        asked[key_of(run.side.label, run.point)] += 1
        if run.side.node == "uvloop":
            raise RuntimeError("on purpose")
        return row.measure(run)

    found = Bench(lab, replace(TINY, runs=2)).measure(replace(row, measure=measure))
    kept, failed = ("system calls @ file to socket", "system calls @ socket to file"), tuple(found["errors"])
    assert {key: len(runs) for key, runs in found["cells"].items()} == dict.fromkeys(kept, 2)
    assert set(found["errors"].values()) == {"RuntimeError: on purpose"}
    assert asked == dict.fromkeys(kept, 3) | dict.fromkeys(failed, 1)


@pytest.mark.parametrize("disturbed", [1, 1000])
def test_a_turn_in_which_the_host_took_a_core_is_repeated_by_all_sides(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, disturbed: int
) -> None:
    (row,) = chosen("floor")
    row = replace(row, points=row.points[:1])
    stolen, turns = 0.0, 0

    def measure(run: Run) -> Figures:
        nonlocal stolen, turns
        turns += 1
        if turns <= disturbed:
            stolen += 1000.0
        return row.measure(run)

    monkeypatch.setattr(node, "stolen_s", lambda: stolen)
    found = Bench(lab, replace(TINY, runs=2, warm_ups=0)).measure(replace(row, measure=measure))
    # One more turn of the two sides where one was disturbed; where all are, no more than there are runs.
    repeated = min(disturbed, 2)
    assert found["repeated"] == repeated
    assert turns == 2 * (2 + repeated)
    assert [len(runs) for runs in found["cells"].values()] == [2, 2]
    assert any(run["stolen_cores"] for runs in found["cells"].values() for run in runs) == (disturbed > 1)


def test_the_command_writes_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "node.json"
    size = ["--runs", "1", "--warm-ups", "0", "--bytes", "100000", "--seconds", "0.1"]
    assert main(["node", "--rows", "floor", "--without-apache", "--json", str(path), *size]) == 0
    assert list(read(path)["rows"]) == ["floor"]
    assert "row 1/1: floor" in capsys.readouterr().out
