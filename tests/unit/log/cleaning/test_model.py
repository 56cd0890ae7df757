"""The cleaner against a list of all that was ever written, through any order of appends, transactions, cleanings,
retention, stops, kills and power cuts, also in the middle of a cleaning."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from importlib.util import find_spec
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.log.cleaning import helpers
from tests.unit.log.cleaning.helpers import COMPACT, RETENTION_MS, Seen, clean, committed, everything, put, values
from tests.unit.log.helpers import mark, open_log, sim_disk
from tidelog.log.cleaning.keeping import Keeper
from tidelog.log.cleaning.range import clean_range
from tidelog.log.cleaning.transactions import CleanedTransactions
from tidelog.protocol.compression import Codec
from tidelog.protocol.records import TwinName
from tidelog.sim.disk import SimulatedCrash

CONFIG = replace(COMPACT, segment_bytes=500)
PRODUCERS = 3
KEYS = [b"a", b"b", b"c", b"long" * 9]


@dataclass(slots=True)
class Written:
    offset: int
    key: bytes
    value: bytes | None
    time: int
    producer: int
    """-1 outside of transactions."""
    ended: bool | None
    """How its transaction did: committed, aborted, not yet."""


class CleanerModel(RuleBasedStateMachine):
    twin: TwinName = "pure"

    @initialize(seed=st.integers(0, 2**16))
    def start(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = sim_disk(seed)
        self.log = open_log(self.disk, CONFIG)
        self.log.flush()
        self.history: list[Written] = []
        self.clock = 1000
        self.recovery_point = 0
        self.cleaned_to = -1

    # Writing

    @rule(
        records=st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=4),
        producer=st.integers(-1, PRODUCERS - 1),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]),
        ends=st.sampled_from([None, None, True, False]),
    )
    def send(self, records: list[tuple[bytes, bool]], producer: int, codec: Codec, ends: bool | None) -> None:
        self.clock += 1
        pairs = [(key, None if gone else b"%d/%d" % (self.clock, n)) for n, (key, gone) in enumerate(records)]
        state = self.log.producers.get(producer)
        first = put(
            self.log,
            *pairs,
            timestamp=self.clock,
            producer_id=producer,
            epoch=0 if state is None else state.epoch,
            sequence=state.batches[-1].last_sequence + 1 if state is not None and state.batches else 0,
            transactional=producer >= 0,
            codec=codec,
        ).base_offset
        for number, (key, value) in enumerate(pairs):
            ended = True if producer < 0 else None
            self.history.append(Written(first + number, key, value, self.clock, producer, ended))
        if producer >= 0 and ends is not None:
            self._end(producer, ends, bump=False)

    @rule(producer=st.integers(0, PRODUCERS - 1), commit=st.booleans(), bump=st.booleans())
    def end(self, producer: int, commit: bool, bump: bool) -> None:
        self._end(producer, commit, bump=bump)

    def _end(self, producer: int, commit: bool, *, bump: bool) -> None:
        self.clock += 1
        state = self.log.producers.get(producer)
        epoch = (0 if state is None else state.epoch) + bump
        mark(self.log, producer, commit=commit, epoch=epoch, timestamp=self.clock)
        for one in self.history:
            if one.producer == producer and one.ended is None:
                one.ended = commit

    @precondition(lambda self: self.log.segments[-1].size > 0)
    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock)

    @rule(wait=st.sampled_from([1, 50, RETENTION_MS, 3 * RETENTION_MS]))
    def wait(self, wait: int) -> None:
        self.clock += wait

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.recovery_point = self.log.recovery_point

    @rule()
    def forget_producers(self) -> None:
        self.log.producers.expire(self.clock + 10**9, 0)

    # Cleaning and retention

    @rule(keys_max=st.sampled_from([1, 2, 1000]), rolls=st.booleans())
    def clean(self, keys_max: int, rolls: bool) -> None:
        """What the node does: the recovery point on the disk is behind all that is cleaned."""
        if rolls and self.log.segments[-1].size:
            self.roll()
        self.flush()
        clean(self.disk, self.log, now_ms=self.clock, keys_max=keys_max, twin=self.twin)
        self.cleaned_to = self.log.cleaned_to

    @rule(after=st.integers(1, 120), power=st.booleans())
    def crash_in_a_cleaning(self, after: int, power: bool) -> None:
        if self.log.segments[-1].size:
            self.roll()
        self.flush()
        self.disk.faults.crash_at = self.disk.operations + after
        with contextlib.suppress(SimulatedCrash):
            clean(self.disk, self.log, now_ms=self.clock, twin=self.twin)
        self.disk.faults.crash_at = None
        self._reopen(power=power)

    @rule(part=st.floats(0, 1))
    def trim(self, part: float) -> None:
        self.log.maybe_increment_log_start(int(self.log.log_end_offset * part * 0.5))
        self.flush()
        self.log.delete_old_segments(self.clock, self.recovery_point)
        self.log.remove_due_files(self.clock + 10**6)

    # Stopping

    @rule()
    def restart(self) -> None:
        self.log.close(self.clock)
        self.recovery_point = self.log.log_end_offset
        self._reopen(clean=True)

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        self._reopen(power=power)

    def _reopen(self, *, clean: bool = False, power: bool = False) -> None:
        before = self.log
        start = before.log_start_offset if before.log_start_offset > before.segments[0].base_offset else 0
        if not clean:
            self.disk = self.disk.crash(keep_page_cache=not power)
        self.log = open_log(self.disk, CONFIG, clean=clean, recovery_point=self.recovery_point, log_start_offset=start)
        self.log.cleaned_to = min(self.cleaned_to, self.log.log_end_offset)
        end = self.log.log_end_offset
        if not clean:
            self.log.flush()
        # What a power cut took was never durable, be it that the name of a segment behind it was. A marker that is lost
        # leaves its transaction open.
        there = {one.offset for one in everything(self.log)} if power else set()
        self.history = [
            one
            for one in self.history
            if one.offset < end and (not power or one.offset < self.recovery_point or one.offset in there)
        ]
        is_open = self.log.producers.open_since
        for one in self.history:
            if one.producer in is_open and one.offset >= is_open[one.producer]:
                one.ended = None

    # What must hold

    @invariant()
    def readers_see_what_was_written(self) -> None:
        start = self.log.log_start_offset
        stable = self._stable()
        written = {one.offset: one for one in self.history}
        seen = everything(self.log)
        assert [one.offset for one in seen] == sorted({one.offset for one in seen}), "offsets go back"
        for one in seen:
            was = written[one.offset]
            assert (one.key, one.value) == (was.key, was.value), "another record than was written"
        at = {one.offset for one in seen}
        newest = {one.key: one.offset for one in self.history if one.ended and one.offset < stable}
        for one in self.history:
            if one.offset < start or one.ended is False:
                continue
            is_live = one.ended is None or one.offset >= newest.get(one.key, 0)
            keeps = one.value is not None or self.clock < one.time + RETENTION_MS
            if is_live and keeps:
                assert one.offset in at, f"{one} is gone"

    @invariant()
    def readers_of_committed_records_see_those(self) -> None:
        start, stable = self.log.log_start_offset, self._stable()
        good = [Seen(one.offset, one.key, one.value) for one in self.history if one.ended and one.offset < stable]
        for offset in {start, start + (stable - start) // 2, max(start, stable - 3)}:
            seen = committed(self.log, offset)
            assert set(seen) <= set(good), f"not committed: {set(seen) - set(good)}"
            assert values(seen) == values([one for one in good if one.offset >= offset]), "a value is gone or back"

    def _stable(self) -> int:
        first_open = next(iter(self.log.producers.open_since.values()), self.log.log_end_offset)
        return max(first_open, self.log.log_start_offset)


TestCleanerModel = CleanerModel.TestCase
TestCleanerModel.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),  # explaining traces every line, and is slow
    suppress_health_check=list(HealthCheck),
)


class NativeModel(CleanerModel):
    twin: TwinName = "native"


@pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
class TestNativeModel(NativeModel.TestCase):  # type: ignore[name-defined,misc]
    settings = TestCleanerModel.settings


# The model can fail


def test_a_snapshot_of_producers_that_a_power_cut_has_emptied_is_forgotten() -> None:
    """Found by the model: a start that looked for aborted transactions removed the file, and the log still counted on
    it."""
    model = CleanerModel()
    model.start(seed=0)
    model.end(producer=0, commit=False, bump=False)
    model.flush()
    model.roll()
    model.crash(power=False)
    model.end(producer=0, commit=False, bump=False)
    model.crash_in_a_cleaning(after=1, power=True)
    names = model.disk.list_dir(model.log.directory)
    assert [f"{offset:020}.snapshot" for offset in model.log.producers.snapshots] == [
        name for name in names if name.endswith(".snapshot")
    ]
    model.clean(keys_max=1, rolls=False)


def caught() -> str:
    from hypothesis.stateful import run_state_machine_as_test

    wanted = settings(
        max_examples=300,
        stateful_step_count=40,
        database=None,
        derandomize=True,
        print_blob=False,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(Exception) as raised:
        run_state_machine_as_test(CleanerModel, settings=wanted)
    return str(raised.value)


def test_a_marker_that_goes_before_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """M11: the producer's next transaction is then taken for a part of the aborted one."""
    met = CleanedTransactions.meet_marker

    def early(self: CleanedTransactions, header: Any, ending: Any) -> tuple[bool, Any]:
        return True, met(self, header, ending)[1]

    monkeypatch.setattr(CleanedTransactions, "meet_marker", early)
    monkeypatch.setattr(Keeper, "_is_last_of_producer", lambda self, header: False)
    monkeypatch.setattr("tidelog.log.cleaning.keeping.delete_horizon_ms", lambda header: 0)
    assert "not committed" in (why := caught()) or "is gone" in why


def test_a_cleaning_that_passes_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """M11: what it wrote has taken the place of what it never replaced."""
    monkeypatch.setattr(
        helpers,
        "clean_range",
        lambda segments, config, **given: clean_range(
            segments, config, **{**given, "stable_offset": given["log_end_offset"]}
        ),
    )
    assert "gone" in caught()


def test_a_tombstone_that_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.log.cleaning.keeping.delete_horizon_ms", lambda header: 0)
    assert "is gone" in caught()


def test_aborted_records_that_count_as_the_last_of_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.log.cleaning.transactions.AbortedRanges.holds", lambda self, header: False)
    assert "gone" in caught()
