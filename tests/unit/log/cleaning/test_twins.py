"""The native loops and the pure ones leave the same files, byte for byte, whatever is in the log, however much is read
at a time and however little room there is for what is decompressed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.unit.log.cleaning.helpers import COMPACT, SEED, put, range_of, roll
from tests.unit.log.helpers import DIRECTORY, mark, open_log, sim_disk, tree
from tests.unit.log.stopped import change, flip
from tidelog.log.cleaning import reading
from tidelog.log.cleaning.errors import UncleanableError
from tidelog.log.cleaning.fates import COPY
from tidelog.log.cleaning.job import CleanJob, GroupCleaned, LogCleaned
from tidelog.log.cleaning.ordering import clean_order
from tidelog.log.cleaning.swap import finish_now, swap_steps
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.batch import CRC_OFFSET
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import TwinName
from tidelog.sim.disk import SimDisk

pytest.importorskip("numba")
TWINS: tuple[TwinName, ...] = ("pure", "native")
TRANSACTIONAL = (0, 1)
"""Producers; one more has none, and -1 is nobody."""
CONFIG = replace(COMPACT, segment_bytes=2000)
KEYS = st.sampled_from([b"", b"a", b"b", b"12345678", b"123456789", b"k" * 40])
SEND = st.tuples(
    st.just("send"),
    st.lists(st.tuples(KEYS, st.sampled_from([None, b"", b"v" * 30])), min_size=1, max_size=6),
    st.integers(-1, 2),
    st.sampled_from([Codec.NONE, Codec.NONE, *Codec]),
)
MARK = st.tuples(st.just("mark"), st.sampled_from(TRANSACTIONAL), st.booleans())
ROLL = st.tuples(st.just("roll"))
FORGET = st.tuples(st.just("forget"))
CLEAN = st.tuples(st.just("clean"), st.sampled_from([1, 3, 10, 1000]), st.sampled_from([0, 60, 150]))
DEEDS = st.lists(st.one_of(SEND, SEND, SEND, MARK, ROLL, CLEAN, FORGET), min_size=1, max_size=30)


def cleaned(disk: SimDisk, log: PartitionLog, twin: TwinName, read_bytes: int, keys_max: int, now_ms: int) -> Any:
    found = range_of(log, now_ms)
    if not found.is_due(log.config):
        return None
    order = clean_order(log, found, now_ms=now_ms, keys_max=keys_max, seed=SEED)
    job = CleanJob(replace(order, read_bytes=read_bytes), twin)
    while True:
        step = job.step(disk)
        if isinstance(step, GroupCleaned):
            finish_now(disk, log, swap_steps(disk, log, step.base_offsets, now_ms))
        elif isinstance(step, LogCleaned):
            log.cleaned_to = step.end_offset
            return step, tree(disk, DIRECTORY)


def outcome(deeds: list[Any], twin: TwinName, read_bytes: int) -> list[Any]:
    """Of every cleaning in it, and of one more."""
    disk = sim_disk()
    log = open_log(disk, CONFIG)
    results, now_ms = [], 2000
    for deed in [*deeds, ("roll",), ("clean", 1000, 60)]:
        match deed:
            case ("send", records, producer, codec):
                state = log.producers.get(producer)
                put(
                    log,
                    *records,
                    timestamp=now_ms,
                    producer_id=producer,
                    epoch=0 if state is None else state.epoch,
                    sequence=state.batches[-1].last_sequence + 1 if state is not None and state.batches else 0,
                    transactional=producer in TRANSACTIONAL,
                    codec=codec,
                )
            case ("mark", producer, commit):
                if log.producers.get(producer) is not None:
                    mark(log, producer, commit=commit)
            case ("roll",):
                if log.segments[-1].size:
                    roll(log)
            case ("forget",):
                log.producers.expire(10**15, 0)
            case ("clean", keys_max, wait):
                now_ms += wait
                results.append(cleaned(disk, log, twin, read_bytes, keys_max, now_ms))
    return results


OLD_TOMBSTONE = [
    ("send", [(b"a", None), (b"b", b"v" * 30), (b"b", None)], -1, Codec.NONE),
    ("roll",),
    ("clean", 1000, 0),
    ("send", [(b"c", b"")], -1, Codec.NONE),
    ("roll",),
    ("clean", 1000, 150),
]


FULL_MAP = [
    ("send", [(b"a", b"v" * 30), (b"b", b"v" * 30)], -1, Codec.NONE),
    ("send", [(b"a", b""), (b"12345678", b"")], -1, Codec.NONE),
    ("send", [(b"b", b"v" * 30)], -1, Codec.NONE),
    ("roll",),
    ("clean", 1, 0),
]


def without_read_bytes(results: list[Any]) -> list[Any]:
    """A job whose map is full has read on to the end of its piece: only this depends on how much it reads at a time."""
    return [found and (found[0]._replace(read_bytes=0), found[1]) for found in results]


@example(deeds=FULL_MAP, read_bytes=61, room=1 << 29)
@example(deeds=OLD_TOMBSTONE, read_bytes=300, room=1 << 29)
@settings(max_examples=60, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(deeds=DEEDS, read_bytes=st.sampled_from([61, 100, 300, 1 << 20]), room=st.sampled_from([1 << 29, 1500]))
def test_both_leave_the_same_files(deeds: list[Any], read_bytes: int, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "DECODED_BYTES", room)
        pure = outcome(deeds, "pure", read_bytes)
        assert outcome(deeds, "native", read_bytes) == pure
        assert without_read_bytes(outcome(deeds, "pure", 1 << 20)) == without_read_bytes(pure)


def filled() -> tuple[SimDisk, PartitionLog]:
    disk = sim_disk()
    log = open_log(disk, CONFIG)
    for number in range(9):
        records = (b"%d" % (number % 4), b"x" * 50), (b"%d" % (number % 3), b"y")
        put(log, *records, producer_id=7, sequence=2 * number)
    roll(log)
    return disk, log


PATH = f"{DIRECTORY}/00000000000000000000.log"


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("read_bytes", [61, 300, 1 << 20])
@pytest.mark.parametrize("at", [3, 9, 16, 18, 22, 24, 59, 80])
def test_damage_anywhere_in_a_batch_is_found(twin: TwinName, read_bytes: int, at: int) -> None:
    """Offset, length, format, CRC, attributes, last offset, count, a record: of the third batch."""
    disk, log = filled()
    size = log.segments[0].size // 9
    change(disk, PATH, flip(2 * size + at))
    with pytest.raises(UncleanableError, match=r"damaged (at|behind) position"):
        cleaned(disk, log, twin, read_bytes, 100, 2000)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("read_bytes", [61, 300, 1 << 20])
@pytest.mark.parametrize(("row", "offset"), [(0, 100), (2, 3), (2, 0), (8, 17), (8, 1000)])
def test_an_offset_that_is_not_in_order_is_found(twin: TwinName, read_bytes: int, row: int, offset: int) -> None:
    """No CRC covers it. (Batch 2 begins with 4, and 18 is the end.)"""
    disk, log = filled()
    at = row * (log.segments[0].size // 9)
    change(disk, PATH, lambda data: data.__setitem__(slice(at, at + 8), offset.to_bytes(8, "big")))
    with pytest.raises(UncleanableError, match="damaged at position"):
        cleaned(disk, log, twin, read_bytes, 100, 2000)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("read_bytes", [61, 300, 1 << 20])
@pytest.mark.parametrize("less", [1, 100, 150])
def test_a_file_that_became_shorter_is_damaged(twin: TwinName, read_bytes: int, less: int) -> None:
    disk, log = filled()
    change(disk, PATH, lambda data: data.__delitem__(slice(-less, None)))
    with pytest.raises(UncleanableError, match="damaged at position"):
        cleaned(disk, log, twin, read_bytes, 100, 2000)


def test_a_processor_without_the_instruction_leaves_the_same_files() -> None:
    """Where the kernels cannot make a CRC, they leave -1 in its place, and the package makes it."""
    import numpy as np

    from tidelog.log.cleaning import kernels_loops, native_loops
    from tidelog.protocol.records import native_decode

    deeds = [
        ("send", [(b"a", b"v" * 30), (b"b", b"v")], 0, Codec.NONE),
        ("mark", 0, True),
        ("send", [(b"a", b""), (b"12345678", b"v" * 30)], -1, Codec.NONE),
        ("send", [(b"b", b"v" * 30), (b"12345678", b"")], -1, Codec.ZSTD),
    ]
    write_with_crc = kernels_loops.write

    def write(*arguments: Any) -> Any:
        wrong = write_with_crc(*arguments)
        fates, results, out = arguments[2], arguments[6], arguments[7]
        for batch in np.flatnonzero(fates == COPY).tolist():
            at = int(results[native_loops._AT, batch]) + CRC_OFFSET
            out[at : at + 4] = 0xFF
        return wrong

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels_loops, "write", write)
        pure = outcome(deeds, "pure", 1 << 20)
        assert outcome(deeds, "native", 1 << 20) != pure, "no batch was written by the kernels"
        patch.setattr(native_loops, "HAS_CRC", False)
        patch.setattr(native_decode, "HAS_CRC", False)
        assert outcome(deeds, "native", 1 << 20) == pure
