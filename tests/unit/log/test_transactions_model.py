"""The transactions of a log against a walk over all its batches, through any order of operations, stops, kills and
power cuts: where a reader of committed records must stop, and what it is told was aborted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.log.helpers import TINY, append, batch_of, mark, open_log, read_batches, sim_disk
from tests.unit.log.walking import Walk, no_arguments
from tidelog.log.transactions import read_ending
from tidelog.protocol.batch import TRANSACTIONAL, read_header

CONFIG = replace(TINY, retention_ms=50)
NEVER = 2**63 - 1
PRODUCERS = 4


class Ended(NamedTuple):
    producer_id: int
    first_offset: int
    last_data_offset: int
    marker_offset: int
    committed: bool


def look_back(batches: list[bytes]) -> tuple[list[Ended], dict[int, int]]:
    """What has ended, and first offsets of what has not, from the batches alone."""
    ended: list[Ended] = []
    is_open: dict[int, int] = {}
    last: dict[int, int] = {}
    for batch in batches:
        header = read_header(batch)
        if header.is_control:
            ending = read_ending(batch, header)
            assert ending is not None
            first = is_open.pop(header.producer_id, None)
            if first is not None:
                data = last[header.producer_id]
                ended.append(Ended(header.producer_id, first, data, header.base_offset, ending.committed))
        elif header.is_transactional:
            is_open.setdefault(header.producer_id, header.base_offset)
            last[header.producer_id] = header.last_offset
    return ended, is_open


class TransactionsModel(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**16))
    def start(self, seed: int) -> None:
        self.disk = sim_disk(seed)
        self.log = open_log(self.disk, CONFIG)
        self.log.flush()
        self.history: list[bytes] = []
        """Also what retention took: a transaction may have begun there."""
        self.epoch = 0
        self.clock = 1000
        self.high_watermark = 0
        self.flushed = 0
        self.recovery_point = 0
        self.retained = 0

    # Changing

    @rule(producer=st.integers(0, PRODUCERS - 1), count=st.integers(1, 3), size=st.sampled_from([5, 200]))
    def send(self, producer: int, count: int, size: int) -> None:
        self.clock += 1
        self._send(producer, count, size)

    def _send(self, producer: int, count: int, size: int) -> None:
        state = self.log.producers.get(producer)
        sequence = state.batches[-1].last_sequence + 1 if state is not None and state.batches else 0
        epoch = 0 if state is None else state.epoch
        batch = batch_of(
            count,
            timestamp=self.clock,
            value=b"x" * size,
            producer_id=producer,
            epoch=epoch,
            sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        append(self.log, batch, leader_epoch=self.epoch, now_ms=self.clock)
        self.history.append(bytes(batch))

    @rule(size=st.sampled_from([5, 200]))
    def send_outside(self, size: int) -> None:
        batch = batch_of(1, timestamp=self.clock, value=b"x" * size)
        append(self.log, batch, leader_epoch=self.epoch, now_ms=self.clock)
        self.history.append(bytes(batch))

    @rule(producer=st.integers(0, PRODUCERS - 1), commit=st.booleans(), bump=st.booleans())
    def end(self, producer: int, commit: bool, bump: bool) -> None:
        state = self.log.producers.get(producer)
        epoch = (0 if state is None else state.epoch) + bump
        mark(self.log, producer, commit=commit, epoch=epoch, leader_epoch=self.epoch, timestamp=self.clock)
        self.history.append(self._last_batch())

    def _last_batch(self) -> bytes:
        end = self.log.log_end_offset
        return bytes(self.log.read(end - 1, 10_000, end_offset=end).data)

    @precondition(lambda self: self.log.segments[-1].size > 0)
    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock)

    @rule()
    def flush(self) -> None:
        """In synced mode the high watermark is what is durable."""
        self.high_watermark = self.flushed = self.log.flush()

    @rule()
    def checkpoint(self) -> None:
        self.recovery_point = self.log.recovery_point

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        """Never below the high watermark, as a follower does it."""
        end = self.log.log_end_offset
        target = self.log.truncation_point(int(self.high_watermark + (end - self.high_watermark) * part))
        if target < max(self.high_watermark, self.log.log_start_offset):
            return
        self.recovery_point = min(self.recovery_point, target)
        self.log.truncate_to(target)
        self.flushed = min(self.flushed, target)
        self.history = [batch for batch in self.history if read_header(batch).last_offset < target]
        self.epoch += 1

    @rule(wait=st.integers(0, 100))
    def retain(self, wait: int) -> None:
        self.clock += wait
        self.recovery_point = self.log.recovery_point
        self.log.delete_old_segments(self.clock, min(self.high_watermark, self.log.recovery_point))
        self.log.remove_due_files(self.clock + 1000)
        # What comes back of expired segments when a cut undoes renames may lack its index; Kafka's may too.
        self.retained = self.log.log_start_offset

    # Stopping

    def _reopen(self, *, clean: bool) -> None:
        before = self.log
        start = before.log_start_offset if before.log_start_offset > before.segments[0].base_offset else 0
        self.log = open_log(self.disk, CONFIG, clean=clean, recovery_point=self.recovery_point, log_start_offset=start)
        self.high_watermark = self.log.log_end_offset
        self.epoch += 1

    @rule()
    def stop_and_start(self) -> None:
        self.log.close(self.clock)
        self.recovery_point = self.log.recovery_point
        self._reopen(clean=True)
        self.flushed = self.log.log_end_offset

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.crash(keep_page_cache=True)
        self._reopen(clean=False)

    @rule()
    def cut_the_power(self) -> None:
        self.disk = self.disk.crash(keep_page_cache=False)
        self._reopen(clean=False)
        found = read_batches(self.log)
        known = {batch for batch in self.history if read_header(batch).last_offset < self.flushed}
        self.history = sorted(known.union(found), key=lambda batch: read_header(batch).base_offset)
        if self.log.producers.open_since != look_back(self.history)[1]:
            # Retention took batches, and the cut the snapshot that told of them. What was open there holds no reader
            # back: nothing of it can be read.
            self.history = [batch for batch in found if read_header(batch).base_offset >= self.log.log_start_offset]
        self.flushed = self.log.log_end_offset

    # Looking

    @invariant()
    def the_first_unstable_offset_agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        ended, is_open = look_back(self.history)
        not_committed = [one.first_offset for one in ended if one.marker_offset >= self.high_watermark]
        expected = min([NEVER, *is_open.values(), *not_committed])
        transactions = self.log.transactions
        if transactions is None:
            assert expected == NEVER
        else:
            assert transactions.first_unstable_offset(self.high_watermark) == expected

    @rule(part=st.floats(0, 1), length=st.integers(0, 30))
    def ask_what_was_aborted(self, part: float, length: int) -> None:
        end = self.log.log_end_offset
        start = min(max(self.log.log_start_offset, self.retained), end)
        offset = int(start + (end - start) * part)
        limit = min(offset + length, end)
        ended, _ = look_back(self.history)
        expected = [
            one
            for one in ended
            if not one.committed and one.marker_offset >= offset and one.first_offset < limit and offset < limit
        ]
        found = self.log.aborted_between(offset, limit)
        known = [one for one in expected if (one.producer_id, one.first_offset) in found]
        assert found == [(one.producer_id, one.first_offset) for one in known]
        # Of one whose data has expired a power cut may leave the marker alone: nobody needs to hear of it.
        assert all(one.last_data_offset < start for one in expected if one not in known)

    @rule()
    def ask_for_all(self) -> None:
        self.ask_what_was_aborted(0.0, 10**9)


RULES: dict[str, Callable[[Random], dict[str, Any]]] = {
    "send": lambda r: {"producer": r.randrange(PRODUCERS), "count": r.randint(1, 3), "size": r.choice((5, 200))},
    "send_outside": lambda r: {"size": r.choice((5, 200))},
    "end": lambda r: {"producer": r.randrange(PRODUCERS), "commit": r.random() < 0.4, "bump": r.random() < 0.5},
    "roll": no_arguments,
    "flush": no_arguments,
    "checkpoint": no_arguments,
    "truncate": lambda r: {"part": r.random()},
    "retain": lambda r: {"wait": r.randint(0, 100)},
    "stop_and_start": no_arguments,
    "kill": no_arguments,
    "cut_the_power": no_arguments,
    "ask_what_was_aborted": lambda r: {"part": r.random(), "length": r.randint(0, 30)},
    "ask_for_all": no_arguments,
}
RARE = ("roll", "checkpoint", "truncate", "retain", "stop_and_start", "kill", "cut_the_power")
WALK = Walk(
    model=TransactionsModel,
    rules=RULES,
    weights={"send": 6, "end": 4, "ask_what_was_aborted": 3, **dict.fromkeys(RARE, 0.5)},
    possible={"roll": lambda model: model.log.segments[-1].size},
    look=TransactionsModel.the_first_unstable_offset_agrees,
    steps=80,
)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_walks(first: int) -> None:
    WALK.take_each(range(first, first + 100))


TestTransactionsModel = TransactionsModel.TestCase
TestTransactionsModel.settings = settings(
    max_examples=30, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
