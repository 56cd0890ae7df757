"""read=segments against the broker: the same rows, and from the files as long as these can be trusted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Producer

from tests.spark.sourcing import send
from tests.unit.spark.segments_rig import FROM_BROKER, Rig, as_rows, offsets, segments
from tidelog.client.metadata import TopicPartition
from tidelog.client.topics import delete_records, delete_topics
from tidelog.log.names import LOG
from tidelog.protocol.batch import HEADER_SIZE, assign_offsets, iter_headers, set_crc
from tidelog.spark.segments import bounds, markers, reading
from tidelog.spark.source import rows
from tidelog.spark.source.loss import DataLossError
from tidelog.testing import Broker

pytestmark = pytest.mark.timeout(300)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {"internal_segment_bytes": "4096"}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Broker({"log.cleaner.backoff.ms": "100"}, process=True) as broker:
        yield Rig(broker)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("WARNING", "tidelog.spark.segments")
    return caplog


@pytest.fixture(scope="module")
def mixed(rig: Rig) -> str:
    """Every codec, headers, null keys and values, in many small segments."""
    topic = rig.topic(**SMALL)
    random = Random(1)
    for codec in CODECS:
        records = [
            {
                "key": None if number % 7 == 0 else b"k%d" % number,
                "value": None if number % 11 == 0 else random.randbytes(80),
                "headers": [("h", b"1"), ("h", None), ("ü", b"")][: number % 4],
            }
            for number in range(200)
        ]
        rig.produce(topic, records, **{"compression.type": codec, "batch.num.messages": 20, "linger.ms": 50})
    assert len(segments(rig.data / f"{topic}-0")) > 10
    return topic


@pytest.mark.parametrize("piece_bytes", [200, 3000, 1 << 20])
def test_the_same_rows_come_from_files(
    rig: Rig, mixed: str, piece_bytes: int, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", piece_bytes)
    assert offsets(rig.both(mixed)) == list(range(1000))
    for start, end in ((0, 1), (1, 2), (13, 290), (399, 601), (999, 1000)):
        assert offsets(rig.both(mixed, start=start, end=end)) == list(range(start, end))
    assert FROM_BROKER not in told.text


def test_the_end_is_the_brokers_and_not_the_files(rig: Rig) -> None:
    """Records behind the planned end, and behind the last stable offset, are in the file too."""
    topic = rig.topic()
    rig.produce(topic, [{"value": b"%d" % number} for number in range(10)])
    early = rig.task(topic, [rig.data])
    producer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, topic, [{"value": b"open"}])
    producer.flush()
    rig.produce(topic, [{"value": b"behind"}])
    assert offsets(as_rows(rows.read(early))) == list(range(10))
    assert offsets(rig.both(topic)) == list(range(10))
    assert offsets(rig.both(topic, isolation="read_uncommitted")) == list(range(12))
    producer.abort_transaction()


def test_transactions_end_where_their_markers_say(
    rig: Rig, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three producers at once, over pieces and segments, with others' records between."""
    topic = rig.topic(**SMALL)
    producers = [
        Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": f"{topic}-{one}", "linger.ms": 0})
        for one in range(3)
    ]
    for producer in producers:
        producer.init_transactions()
    shown: list[int] = []
    every: list[int] = []
    for turn in range(8):
        kept = [(turn + number) % 3 != 0 for number in range(3)]
        written: list[list] = [[], [], []]
        for producer in producers:
            producer.begin_transaction()
        for step in range(4):
            for number, producer in enumerate(producers):
                sent = send(producer, topic, [{"value": b"%d %d" % (turn, step) * 30}] * 5)
                producer.flush()
                written[number] += sent
            plain = [row.offset for row in rig.produce(topic, [{"value": b"between"}])]
            shown += plain
            every += plain
        for number, producer in enumerate(producers):
            if kept[number]:
                producer.commit_transaction()
                shown += [row.offset for row in written[number]]
            else:
                producer.abort_transaction()
            every += [row.offset for row in written[number]]
    for piece_bytes in (700, 1 << 20):
        monkeypatch.setattr(reading, "PIECE_BYTES", piece_bytes)
        assert offsets(rig.both(topic)) == sorted(shown)
        assert offsets(rig.both(topic, isolation="read_uncommitted")) == sorted(every)
        end = max(every)
        for start in range(0, end, 37):
            found = offsets(rig.read(topic, [rig.data], start=start, end=min(start + 37, end)))
            assert found == [offset for offset in sorted(shown) if start <= offset < min(start + 37, end)]
    assert FROM_BROKER not in told.text
    # Too far to look: the broker says it.
    monkeypatch.setattr(reading, "PIECE_BYTES", 200)
    monkeypatch.setattr(markers, "AHEAD_BYTES_MAX", 300)
    assert offsets(rig.both(topic)) == sorted(shown)
    assert "the end of a transaction is more than" in told.text


def test_the_end_of_a_transaction_whose_file_is_gone_is_asked_for(
    rig: Rig, tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    topic = rig.topic(**SMALL)
    producer = Producer({"bootstrap.servers": rig.bootstrap, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(20):
        send(producer, topic, [{"value": b"aborted" * 100}])
        producer.flush()
    producer.abort_transaction()
    folder = rig.copy(topic, tmp_path)
    segments(folder)[-1].unlink()
    assert len(segments(folder)) >= 2
    assert rig.both(topic, [tmp_path]) == []
    assert "the end of a transaction is not found" in told.text


def test_a_compacted_log_has_gaps_over_segments(rig: Rig, told: pytest.LogCaptureFixture) -> None:
    topic = rig.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", internal_segment_bytes="20000")
    # Keys of the middle die out altogether, so that whole segments are empty or begin with a gap.
    records = [{"key": b"%d" % (number % (200 if number < 400 else 5)), "value": b"x" * 300} for number in range(900)]
    rig.produce(topic, records, **{"batch.num.messages": 10})
    rig.produce(topic, [{"key": b"last", "value": b"x" * 300}] * 80, **{"batch.num.messages": 10})
    _wait_for_cleaning(rig, topic)
    found = rig.both(topic)
    assert 0 < len(found) < 600
    for start in range(0, 980, 45):
        rig.both(topic, start=start, end=min(start + 45, 980))
    assert FROM_BROKER not in told.text


def _wait_for_cleaning(rig: Rig, topic: str) -> None:
    """Up to the active segment: nothing is left to be cleaned."""
    deadline = time.monotonic() + 120
    done = f"{topic} 0 {int(segments(rig.data / f'{topic}-0')[-1].stem)}\n"
    checkpoint = rig.data / "cleaner-offset-checkpoint"
    while not checkpoint.exists() or done not in checkpoint.read_text():
        assert time.monotonic() < deadline, "the log is not cleaned"
        time.sleep(0.05)


def test_the_cleaner_puts_other_files_in_their_place_while_they_are_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun before the log was cleaned: whichever of the two is read on, no offset comes twice, and no last value is
    missing."""
    monkeypatch.setattr(reading, "PIECE_BYTES", 1000)
    topic = rig.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", internal_segment_bytes="20000")
    records = [{"key": b"%d" % (number % 30), "value": b"%d " % number * 50} for number in range(300)]
    rig.produce(topic, records[:150], **{"batch.num.messages": 10})
    reader = rows.read(rig.task(topic, [rig.data], end=150))
    found = as_rows([next(reader)])
    rig.produce(topic, records[150:], **{"batch.num.messages": 10})
    _wait_for_cleaning(rig, topic)
    found += as_rows(reader)
    assert offsets(found) == sorted(set(offsets(found)))
    assert {row["offset"]: row["value"] for row in found}.items() <= {
        number: record["value"] for number, record in enumerate(records)
    }.items()
    left = offsets(rig.read(topic, end=150))
    assert set(left) <= set(offsets(found))


def test_records_before_the_log_start_are_gone_though_their_file_is_there(rig: Rig) -> None:
    topic = rig.topic()
    rig.produce(topic, [{"value": b"%d" % number} for number in range(100)])
    planned = rig.task(topic, [rig.data])
    forgiving = rig.task(topic, [rig.data], fail_on_data_loss=False)
    rig.ask(lambda cluster: delete_records(cluster, {TopicPartition(topic, 0): 40}))
    assert segments(rig.data / f"{topic}-0")[0].name == "0" * 20 + LOG
    with pytest.raises(DataLossError, match="the log begins at 40, offset 0 is gone"):
        as_rows(rows.read(planned))
    assert offsets(as_rows(rows.read(forgiving))) == list(range(40, 100))
    assert offsets(rig.both(topic)) == list(range(40, 100))


def test_a_log_start_that_moves_while_files_are_read_is_heard_of(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", 200)
    monkeypatch.setattr(bounds, "ASKED_EVERY_S", 0.0)
    topic = rig.topic()
    rig.produce(topic, [{"value": b"%d" % number * 30} for number in range(100)], **{"batch.num.messages": 5})
    reader = rows.read(rig.task(topic, [rig.data], fail_on_data_loss=False))
    found = as_rows([next(reader)])
    rig.ask(lambda cluster: delete_records(cluster, {TopicPartition(topic, 0): 60}))
    found += as_rows(reader)
    assert offsets(found) == [*range(5), *range(60, 100)]


def test_another_topic_of_the_name_is_not_read_from_the_old_folder(
    rig: Rig, tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    topic = rig.topic()
    rig.produce(topic, [{"value": b"old"}] * 5)
    planned = rig.task(topic, [tmp_path])
    rig.copy(topic, tmp_path)
    rig.ask(lambda cluster: delete_topics(cluster, [topic]))
    rig.topic(name=topic)
    rig.produce(topic, [{"value": b"new"}] * 5)
    assert [row["value"] for row in rig.both(topic, [tmp_path])] == [b"new"] * 5
    assert f"{tmp_path}/{topic}-0 is of the topic with the id" in told.text
    with pytest.raises(DataLossError, match="was deleted and created again"):
        as_rows(rows.read(planned))


def test_what_vanishes_is_fetched(
    rig: Rig, mixed: str, tmp_path: Path, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", 1000)
    expected = rig.read(mixed)
    assert rig.read(mixed, ["/not/here", tmp_path]) == expected
    assert "No such file or directory" in told.text
    folder = rig.copy(mixed, tmp_path)
    files = segments(folder)
    # Planned with all of them, begun with the first; then some are gone, some are shorter.
    reader = rows.read(rig.task(mixed, [tmp_path]))
    found = as_rows([next(reader)])
    for file in files[2:5]:
        file.unlink()
    with open(files[6], "r+b") as half:
        half.truncate(files[6].stat().st_size // 2)
    with open(files[0], "r+b") as first:
        first.truncate(1100)
    told.clear()
    found += as_rows(reader)
    assert found == expected
    (line,) = [record.getMessage() for record in told.records]
    assert "2 more reasons" in line
    sizes = [file.stat().st_size for file in segments(rig.data / folder.name)]
    from_broker, every = (int(line.split()[at]) for at in (1, 3))
    assert sum(sizes[2:5]) < from_broker < sum(sizes[2:5]) + sizes[0] + sizes[6] + 4096
    assert every >= sum(sizes)


def test_damage_in_a_file_is_fetched_and_not_shown(
    rig: Rig, mixed: str, tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    expected = rig.read(mixed)
    folder = rig.copy(mixed, tmp_path)
    files = segments(folder)
    for file, place in ((files[1], HEADER_SIZE + 3), (files[2], 7), (files[3], 11), (files[4], 16), (files[5], 15)):
        # In a record; in the base offset, length, format and leader epoch of the second batch.
        data = bytearray(file.read_bytes())
        second = [position for position, _ in iter_headers(data)][1]
        data[second + place] ^= 1
        file.write_bytes(data)
    for index in folder.glob("*.index"):
        index.write_bytes(b"\x00\x00\x00\x01\x00\x00\x00\x05" * 40)
    assert rig.read(mixed, [tmp_path]) == expected
    assert [line for line in told.text.splitlines() if FROM_BROKER in line and "4 more reasons" in line]
    for start in range(0, 1000, 90):
        assert rig.read(mixed, [tmp_path], start=start) == expected[start:]


def test_a_node_that_went_its_own_way_is_not_believed(rig: Rig, tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    """It led once, in an epoch that the leader has nothing of, and has other records at the same offsets."""
    topic = rig.topic()
    rig.produce(topic, [{"value": b"%02d" % number} for number in range(40)], **{"batch.num.messages": 10})
    (file,) = segments(rig.copy(topic, tmp_path))
    data = bytearray(file.read_bytes())
    for position, header in list(iter_headers(data))[2:]:
        batch = memoryview(data)[position : position + header.size]
        batch[-3:-1] = b"!!"  # in the last value
        assign_offsets(batch, header.base_offset, header.leader_epoch + 1)
        set_crc(batch)
    assert data.count(b"!!") == 2
    file.write_bytes(data)
    assert [row["value"] for row in rig.both(topic, [tmp_path])] == [b"%02d" % number for number in range(40)]
    assert "is not in the leader's log" in told.text


def test_of_several_directories_each_gives_what_it_has(
    rig: Rig, mixed: str, tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    for name, kept in (("one", slice(None, 7)), ("two", slice(5, None))):
        folder = rig.copy(mixed, tmp_path / name)
        for file in set(segments(folder)).difference(segments(folder)[kept]):
            file.unlink()
    assert len(rig.both(mixed, [tmp_path / "two", tmp_path / "one"])) == 1000
    assert FROM_BROKER not in told.text
