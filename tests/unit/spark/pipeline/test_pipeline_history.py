"""The history of a run: bounded, whole after a crash, and true in its sums and peaks."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.pipeline.history import History, Line, Mark, Sample, joined, read_history, thinned
from tidelog.spark.pipeline.progress import Progress
from tidelog.spark.pipeline.recording import Recorder
from tidelog.spark.pipeline.sinks import Written
from tidelog.spark.pipeline.state import RunState

numbers = st.integers(0, 10**12)
maybe = st.none() | numbers
samples = st.builds(
    Sample,
    since_ms=numbers,
    at_ms=numbers,
    batches=st.integers(0, 3),
    rows=numbers,
    busy_ms=numbers,
    longest_ms=numbers,
    lag_records=maybe,
    lag_ms=maybe,
    watermark_ms=st.none() | st.integers(-(2**62), 2**62),
    totals=st.dictionaries(st.sampled_from(["late", "dead"]), numbers),
)
marks = st.builds(Mark, at_ms=numbers, what=st.sampled_from(["started", "failed"]), text=st.text())
lines = st.lists(samples | marks, max_size=60)


def sums(found: list[Line]) -> tuple[int, ...]:
    kept = [line for line in found if isinstance(line, Sample)]
    lags = [line.lag_records for line in kept if line.lag_records is not None]
    return (
        sum(line.rows for line in kept),
        sum(line.batches for line in kept),
        sum(line.busy_ms for line in kept),
        max((line.longest_ms for line in kept), default=0),
        max(lags, default=-1),
    )


@given(lines)
def test_thinning_keeps_sums_peaks_order_and_marks(found: list[Line]) -> None:
    few = thinned(found)
    assert sums(few) == sums(found)
    assert [line for line in few if isinstance(line, Mark)] == [line for line in found if isinstance(line, Mark)]
    places = [line.at_ms for line in found]
    rest = iter(places)
    assert all(line.at_ms in rest for line in few)
    number = sum(isinstance(line, Sample) for line in found)
    between = sum(isinstance(line, Mark) for line in found) + 1
    assert sum(isinstance(line, Sample) for line in few) <= (number + between) / 2


@given(lines, st.integers(0, 10))
def test_of_too_many_marks_the_newest_stay(found: list[Line], most: int) -> None:
    every = [line for line in found if isinstance(line, Mark)]
    assert [line for line in thinned(found, most) if isinstance(line, Mark)] == every[
        len(every) - most if len(every) > most else 0 :
    ]


def test_two_samples_are_one_that_says_how_far_it_was_at_its_end() -> None:
    first = Sample(since_ms=1, at_ms=5, rows=2, lag_records=9, watermark_ms=3, totals={"late": 1, "dead": 4})
    second = Sample(since_ms=6, at_ms=8, rows=3, lag_records=1, totals={"late": 2})
    both = Sample(since_ms=1, at_ms=8, batches=2, rows=5, lag_records=9, watermark_ms=3, totals={"late": 2, "dead": 4})
    assert joined(first, second) == both


@settings(max_examples=40)
@given(lines, st.data())
def test_a_file_that_was_torn_anywhere_goes_on_with_whole_lines(found: list[Line], data: st.DataObject) -> None:
    whole = b"".join(msgspec.json.encode(line) + b"\n" for line in found)
    cut = data.draw(st.integers(0, len(whole)))
    complete = whole[:cut].count(b"\n")
    with TemporaryDirectory() as home:
        path = Path(home) / "flow-a.jsonl"
        path.write_bytes(whole[:cut])
        history = History(path)
        after = [Mark(at_ms=7, what="started"), Sample(since_ms=8, at_ms=9)]
        for line in after:
            history.add(line)
        history.close()
        read = read_history(path)
    # What was torn right before its line's end is whole.
    assert read[:complete] == found[:complete]
    assert read[complete:] in (after, [*found[complete : complete + 1], *after])


@settings(max_examples=15)
@given(st.lists(st.booleans(), min_size=80, max_size=120))
def test_a_file_never_grows_over_its_bounds(kinds: list[bool]) -> None:
    with TemporaryDirectory() as home:
        path = Path(home) / "run.jsonl"
        history = History(path, samples_max=21, marks_max=9)
        for at, is_mark in enumerate(kinds):
            if at == 70:
                history.close()
                history = History(path, samples_max=21, marks_max=9)  # another run
            history.add(Mark(at_ms=at, what="failed") if is_mark else Sample(since_ms=at, at_ms=at, rows=1))
            read = read_history(path)
            assert sum(isinstance(line, Sample) for line in read) <= 21
            assert sum(isinstance(line, Mark) for line in read) <= 18
        history.close()
        assert sums(read_history(path))[0] == kinds.count(False)
        assert [file.name for file in Path(home).iterdir()] == ["run.jsonl"]


def test_what_is_no_line_of_ours_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    mark = Mark(at_ms=1, what="started")
    path.write_bytes(b'{"is":"other"}\n\xff\xfe\n[]\n' + msgspec.json.encode(mark) + b'\n{"is":"sample","at_ms":')
    assert read_history(path) == [mark]
    assert read_history(tmp_path / "nothing") == []


def progress(batch: int) -> Progress:
    return Progress(
        batch=batch,
        at="2026-11-16T10:00:00.000Z",
        rows=5,
        input_rows_per_s=1.0,
        processed_rows_per_s=1.0,
        duration_ms=2000,
        lag_records=3,
        newest_ms=1_794_823_190_000,
    )


def test_a_batch_is_recorded_once_and_a_run_that_died_is_told_by_the_next(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ["a"], print)
    recorder.begin(RunState(pipeline="shop", pid=7, started_ms=1, seen_ms=5), 10, 8)
    for batch in (0, 1, 1, 0):
        recorder.batch("a", progress(batch), Written(rows=1, late=4, watermark_ms=2, aside={"duplicates": 3}), 99)
    recorder.mark("a", "failed", 11, "x" * 1000)
    recorder.end(0, 12)
    sample = Sample(
        since_ms=1_794_823_200_000,
        at_ms=1_794_823_202_000,
        rows=5,
        busy_ms=2000,
        longest_ms=2000,
        lag_records=3,
        lag_ms=12_000,
        watermark_ms=2,
        totals={"late": 4, "duplicates": 3},
    )
    failed = Mark(at_ms=11, what="failed", text="x" * 500)
    assert read_history(tmp_path / "history" / "flow-a.jsonl") == [sample, sample, failed]
    assert read_history(tmp_path / "history" / "run.jsonl") == [
        Mark(at_ms=5, what="died", text="pid 7"),
        Mark(at_ms=10, what="started", text="pid 8"),
        Mark(at_ms=12, what="ended", text="exit code 0"),
    ]


def test_an_idle_look_is_recorded_after_a_batch_and_then_once_a_minute(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ["a"], print)
    for now_ms in (1_000, 11_000, 60_999, 61_000):
        recorder.idle("a", now_ms)
    recorder.batch("a", progress(0), None, 62_000)
    recorder.idle("a", 63_000)
    recorder.end(0, 64_000)
    found = [line for line in read_history(tmp_path / "history" / "flow-a.jsonl") if isinstance(line, Sample)]
    assert [line.at_ms for line in found if not line.batches] == [1_000, 61_000, 63_000]
    assert all((line.lag_records, line.lag_ms) == (0, 0) for line in found if not line.batches)


def test_a_disk_that_takes_nothing_is_told_once_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    recorder = Recorder(tmp_path, ["a"], told.append)

    def full(self: History, line: Line) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(History, "add", full)
    recorder.idle("a", 1)
    recorder.mark("a", "failed", 2)
    recorder.end(0, 3)
    assert len(told) == 1
    assert "No space left" in told[0]
