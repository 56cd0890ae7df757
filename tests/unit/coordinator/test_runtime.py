"""Leadership, loading, shared appends and answers that wait: the runtime below every coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.coordinator.fakes import FakeClock, FakeLog
from tidelog.coordinator.decision import Decision
from tidelog.coordinator.moment import Moment
from tidelog.coordinator.outbox import Outbox, Waiting
from tidelog.coordinator.runtime import CoordinatorRuntime
from tidelog.coordinator.shard import Limits, Shard
from tidelog.coordinator.shard_log import Producer
from tidelog.kernel.errors import DiskError, ProtocolError
from tidelog.protocol.batch import CONTROL, TRANSACTIONAL, RecordInput, build_batch, read_header
from tidelog.protocol.errors import ErrorCode


class Register:
    """The smallest machine: numbers by name. "?" is a record of a newer node, "!" one that cannot be read."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.offsets: list[int] = []
        self.life: list[str] = []
        self.alarm_ms: int | None = None
        self.steps_to_load = 0

    def encode(self, record: tuple[str, int]) -> tuple[bytes, bytes | None]:
        return record[0].encode(), str(record[1]).encode()

    def decode(self, key: bytes, value: bytes | None) -> tuple[str, int] | None:
        if key == b"!":
            raise ProtocolError("unreadable")
        return None if key == b"?" else (key.decode(), int(value or b"0"))

    def replay(self, record: tuple[str, int], offset: int, producer_id: int) -> None:
        self.offsets.append(offset)
        values = self.values if producer_id == -1 else self.pending.setdefault(producer_id, {})
        values[record[0]] = record[1]

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        values = self.pending.pop(producer_id, {})
        if committed:
            self.values.update(values)

    def loaded(self, now: Moment) -> Iterator[int]:
        for number in range(self.steps_to_load):
            self.life.append(f"step {number}")
            yield 1
        self.life.append("loaded")

    def unloaded(self, now: Moment) -> None:
        self.life.append("unloaded")

    def deadline_ms(self) -> int | None:
        return self.alarm_ms

    def tick(self, now: Moment) -> Iterator[Decision[tuple[str, int], None]]:
        self.alarm_ms = None
        yield Decision([("ticks", self.values.get("ticks", 0) + 1)], None)
        yield Decision([("ticks", self.values.get("ticks", 0) + 1)], None)


class Bench:
    def __init__(self, **limits: int) -> None:
        self.clock = FakeClock()
        self.wakes = 0
        self.answers: list[object] = []
        self.machines: list[Register] = []
        self.log = FakeLog()
        self.runtime: CoordinatorRuntime[Register] = CoordinatorRuntime(
            self.make, self.clock, self.wake, Limits(**limits)
        )

    def make(self, partition: int, outbox: Outbox) -> Register:
        self.machines.append(Register())
        return self.machines[-1]

    def wake(self) -> None:
        self.wakes += 1

    @property
    def shard(self) -> Shard[Register]:
        found = self.runtime.find(0)
        assert isinstance(found, Shard)
        return found

    def put(self, name: str, value: int) -> None:
        decision = Decision([(name, value)], f"{name}={value}")
        self.shard.write(lambda machine, now: decision, self.answers.append, _refused)

    def put_shared(self, name: str, value: int) -> None:
        decision = Decision([(name, value)], f"{name}={value}")
        self.shard.write_shared(lambda machine, now: decision, self.answers.append, _refused)

    def get(self, name: str) -> None:
        self.shard.read(lambda machine: str(machine.values.get(name)), self.answers.append, _refused)


def _refused(code: ErrorCode) -> str:
    return code.name


def started(**limits: int) -> Bench:
    bench = Bench(**limits)
    bench.runtime.load(0, 1, bench.log)
    return bench


def filled(*names: str) -> FakeLog:
    log = FakeLog()
    for number, name in enumerate(names):
        log.append([(name.encode(), str(number).encode())], 0)
    return log


# answers


def test_a_write_is_answered_when_it_is_committed() -> None:
    bench = started()
    bench.log.holds = True
    bench.put("a", 1)
    assert bench.answers == []
    assert bench.machines[0].values == {"a": 1}
    bench.log.commit()
    assert bench.answers == ["a=1"]


def test_a_read_is_answered_when_all_it_saw_is_committed() -> None:
    bench = started()
    bench.get("a")
    bench.log.holds = True
    bench.put("a", 1)
    bench.get("a")
    assert bench.answers == ["None"]
    bench.log.commit()
    assert bench.answers == ["None", "a=1", "1"]
    bench.get("a")
    assert bench.answers[-1] == "1"


def test_what_was_loaded_but_not_committed_is_not_read_either() -> None:
    bench = Bench()
    bench.log = filled("a")
    bench.log.high_watermark = 0
    bench.runtime.load(0, 1, bench.log)
    bench.get("a")
    assert bench.answers == []
    bench.log.commit()
    assert bench.answers == ["0"]


@pytest.mark.parametrize("shared", [False, True])
def test_an_append_that_fails_changes_nothing_and_is_refused(shared: bool) -> None:
    bench = started()
    bench.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    (bench.put_shared if shared else bench.put)("a", 1)
    bench.runtime.poll()
    assert bench.answers == ["NOT_ENOUGH_REPLICAS"]
    assert bench.machines[0].values == {}


def test_a_disk_error_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = started()

    def broken(*_: object) -> int:
        raise DiskError("EIO")

    monkeypatch.setattr(bench.log, "append", broken)
    bench.put("a", 1)
    assert bench.answers == ["KAFKA_STORAGE_ERROR"]


def test_the_settled_hook_is_told_before_the_answer_leaves() -> None:
    bench = started()

    def write(failure: ErrorCode | None) -> None:
        bench.log.failure = failure
        decision = Decision([("a", 1)], "answer", lambda code, now: bench.answers.append(code))
        bench.shard.write(lambda machine, now: decision, bench.answers.append, _refused)

    write(None)
    write(ErrorCode.KAFKA_STORAGE_ERROR)
    assert bench.answers == [ErrorCode.NONE, "answer", ErrorCode.KAFKA_STORAGE_ERROR, "KAFKA_STORAGE_ERROR"]


def test_an_answer_that_waits_too_long_is_a_time_out_and_is_given_once() -> None:
    bench = started(commit_timeout_ms=5_000)
    bench.log.holds = True
    bench.put("a", 1)
    assert bench.runtime.deadline_ms() == bench.clock.ms + 5_000
    bench.clock.ms += 5_000
    bench.runtime.poll()
    assert bench.answers == ["REQUEST_TIMED_OUT"]
    bench.log.commit()
    assert bench.answers == ["REQUEST_TIMED_OUT"]
    bench.get("a")
    assert bench.answers[-1] == "1"


def test_an_answer_may_lead_to_another_request_at_once() -> None:
    bench = started()

    def answered(response: str) -> None:
        bench.answers.append(response)
        if response == "a=1":
            bench.put("a", 2)

    decision = Decision([("a", 1)], "a=1")
    bench.shard.write(lambda machine, now: decision, answered, _refused)
    bench.get("a")
    assert bench.answers == ["a=1", "a=2", "2"]


# shared appends


def test_writes_of_one_turn_share_an_append() -> None:
    bench = started()
    bench.put_shared("a", 1)
    bench.put_shared("b", 2)
    assert bench.wakes == 1
    assert bench.runtime.deadline_ms() == 0
    assert bench.log.batches == []
    bench.runtime.poll()
    assert len(bench.log.batches) == 1
    assert bench.answers == ["a=1", "b=2"]
    assert bench.machines[0].offsets == [0, 1]
    assert bench.runtime.deadline_ms() is None


def test_anything_else_flushes_them_first() -> None:
    bench = started()
    bench.put_shared("a", 1)
    bench.get("a")
    assert bench.answers == ["a=1", "1"]
    bench.put_shared("a", 2)
    bench.put("b", 3)
    assert len(bench.log.batches) == 3
    assert bench.answers[2:] == ["a=2", "b=3"]


def test_a_shared_batch_does_not_outgrow_its_limit() -> None:
    bench = started(shared_batch_bytes=4)
    for name in "abcde":
        bench.put_shared(name, 1)
    bench.runtime.poll()
    assert len(bench.log.batches) == 3
    assert len(bench.answers) == 5


def test_a_decision_without_records_does_not_wait_for_the_batch() -> None:
    bench = started()
    bench.put_shared("a", 1)
    refusal: Decision[tuple[str, int], str] = Decision([], "no")
    bench.shard.write_shared(lambda machine, now: refusal, bench.answers.append, _refused)
    assert bench.answers == ["no"]


# leadership


def test_a_partition_that_is_led_elsewhere_is_not_ours() -> None:
    assert Bench().runtime.find(0) is ErrorCode.NOT_COORDINATOR


def test_loading_replays_the_log_and_leaves_unknown_records_alone(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.log = filled("a", "?", "b", "a")
    bench.runtime.load(0, 1, bench.log)
    assert bench.machines[0].values == {"a": 3, "b": 2}
    assert bench.machines[0].offsets == [0, 2, 3]
    assert bench.machines[0].life == ["loaded"]
    assert [record.getMessage() for record in caplog.records] == [
        "partition 0: 1 records that a newer release wrote were skipped"
    ]


def test_a_long_log_is_loaded_slice_by_slice() -> None:
    bench = Bench(load_slice=2)
    bench.log = filled("a", "b", "c", "d", "e")
    bench.runtime.load(0, 1, bench.log)
    assert bench.runtime.find(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.runtime.is_loading and bench.runtime.deadline_ms() == 0
    polls = 0
    while bench.runtime.is_loading:
        bench.runtime.poll()
        polls += 1
    assert polls == 2
    assert bench.machines[0].values == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
    assert bench.wakes == 2


def test_many_short_logs_are_loaded_in_slices_too() -> None:
    bench = Bench(load_slice=10)
    logs = [filled(*"abcd") for _ in range(10)]
    for partition, log in enumerate(logs):
        bench.runtime.load(partition, 1, log)
    loaded = [sum(len(machine.offsets) for machine in bench.machines)]
    while bench.runtime.is_loading:
        bench.runtime.poll()
        loaded.append(sum(len(machine.offsets) for machine in bench.machines))
    # One record of each is looked at when it comes, to find those that are empty.
    assert loaded == [17, 27, 37, 40]
    assert all(machine.values == {"a": 0, "b": 1, "c": 2, "d": 3} for machine in bench.machines)


def test_what_follows_the_log_is_loaded_in_slices_too() -> None:
    bench = Bench(load_slice=2)
    make = bench.make

    def slow(partition: int, outbox: Outbox) -> Register:
        machine = make(partition, outbox)
        machine.steps_to_load = 3
        return machine

    bench.runtime._machine = slow
    bench.runtime.load(0, 1, filled("a"))
    assert bench.runtime.find(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.machines[0].life == ["step 0"]
    bench.runtime.poll()
    assert bench.machines[0].life == ["step 0", "step 1", "step 2"]
    bench.runtime.poll()
    assert bench.machines[0].life[-1] == "loaded"
    assert bench.shard.machine.values == {"a": 0}


def test_an_empty_log_is_loaded_at_once_whatever_else_is() -> None:
    bench = Bench(load_slice=1)
    bench.runtime.load(0, 1, filled("a", "b"))
    bench.runtime.load(1, 1, FakeLog())
    assert bench.runtime.find(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert isinstance(bench.runtime.find(1), Shard)


@pytest.mark.parametrize(("value", "polls"), [(b"1", 2), (b"1" + b" " * 600, 4)])
def test_a_batch_of_many_records_is_loaded_in_slices_and_large_ones_count_more(value: bytes, polls: int) -> None:
    bench = Bench(load_slice=3)
    bench.log.append([(name.encode(), value) for name in "abcdefgh"], 0)
    bench.runtime.load(0, 1, bench.log)
    count = 0
    while bench.runtime.is_loading:
        bench.runtime.poll()
        count += 1
    assert count == polls
    assert len(bench.machines[0].values) == 8


def test_a_log_that_cannot_be_read_is_not_answered_from() -> None:
    bench = Bench()
    bench.log = filled("a", "!")
    bench.runtime.load(0, 1, bench.log)
    assert bench.runtime.find(0) is ErrorCode.NOT_COORDINATOR
    assert bench.runtime.shards() == []
    bench.runtime.load(0, 2, filled("a"))
    assert bench.shard.machine.values == {"a": 0}


def test_transactions_in_the_log_take_effect_with_their_commit_marker() -> None:
    bench = Bench()

    def transactional(name: str, producer_id: int) -> bytearray:
        record = RecordInput(name.encode(), b"1")
        return build_batch([record], base_offset=bench.log.end, attributes=TRANSACTIONAL, producer_id=producer_id)

    def marker(kind: int, producer_id: int) -> bytearray:
        record = RecordInput(b"\x00\x00\x00" + bytes([kind]), b"\x00\x00\x00\x00\x00\x00")
        attributes = TRANSACTIONAL | CONTROL
        return build_batch([record], base_offset=bench.log.end, attributes=attributes, producer_id=producer_id)

    for batch in ((transactional, "a", 7), (transactional, "b", 8), (transactional, "c", 9)):
        bench.log.add(batch[0](batch[1], batch[2]))
    bench.log.add(marker(1, 7))
    bench.log.add(marker(0, 8))
    bench.runtime.load(0, 1, bench.log)
    assert bench.machines[0].values == {"a": 1}
    bench.shard.end_transaction(9, True)
    assert bench.machines[0].values == {"a": 1, "c": 1}


def test_a_marker_that_comes_while_a_partition_is_loaded_is_not_lost() -> None:
    bench = Bench(load_slice=1)
    record = RecordInput(b"a", b"1")
    bench.log.add(build_batch([record], attributes=TRANSACTIONAL, producer_id=7))
    bench.log.add(build_batch([RecordInput(b"b", b"2")], base_offset=1))
    bench.runtime.load(0, 1, bench.log)
    assert bench.runtime.is_loading
    bench.runtime.end_transaction(0, 7, True)
    bench.runtime.end_transaction(3, 7, True)  # of a partition that is not ours
    while bench.runtime.is_loading:
        bench.runtime.poll()
    assert bench.machines[0].values == {"a": 1, "b": 2}


def test_a_write_in_a_transaction_takes_effect_with_its_marker_and_is_read_when_that_is_committed() -> None:
    bench = started()
    bench.shard.write_transactional(
        Producer(7, 2), lambda machine, now: Decision([("a", 1)], "done"), bench.answers.append, _refused
    )
    assert bench.answers == ["done"] and bench.machines[0].values == {}
    header = read_header(bench.log.batches[0])
    assert (header.producer_id, header.producer_epoch, header.is_transactional) == (7, 2, True)
    bench.log.holds = True
    bench.log.end += 1  # the marker
    bench.runtime.end_transaction(0, 7, True)
    bench.get("a")
    assert bench.answers == ["done"]
    bench.log.commit()
    assert bench.answers == ["done", "1"]


def test_a_write_in_a_transaction_that_the_log_refuses() -> None:
    bench = started()
    bench.log.failure = ErrorCode.INVALID_PRODUCER_EPOCH
    bench.shard.write_transactional(
        Producer(7, 2), lambda machine, now: Decision([("a", 1)], "done"), bench.answers.append, _refused
    )
    assert bench.answers == ["INVALID_PRODUCER_EPOCH"]
    bench.runtime.end_transaction(0, 7, True)
    assert bench.machines[0].values == {}


def test_who_waits_is_refused_when_leadership_goes() -> None:
    bench = started()
    bench.log.holds = True
    bench.put("a", 1)
    bench.get("a")
    bench.put_shared("b", 1)
    bench.runtime.unload(0, 2)
    assert bench.answers == ["NOT_COORDINATOR"] * 3
    assert bench.machines[0].life == ["loaded", "unloaded"]
    assert bench.runtime.find(0) is ErrorCode.NOT_COORDINATOR
    bench.log.commit()
    bench.runtime.poll()
    assert len(bench.answers) == 3


def test_the_log_may_say_first_that_leadership_is_lost() -> None:
    bench = started()
    bench.log.holds = True
    bench.put("a", 1)
    bench.log.lose()
    assert bench.answers == ["NOT_LEADER_OR_FOLLOWER"]
    bench.runtime.unload(0, 2)
    assert len(bench.answers) == 1


def test_old_news_of_leadership_is_ignored() -> None:
    bench = Bench()
    bench.runtime.load(0, 5, bench.log)
    bench.runtime.load(0, 5, filled("a"))
    bench.runtime.load(0, 4, filled("a"))
    bench.runtime.unload(0, 4)
    assert bench.shard.machine.values == {}
    bench.runtime.load(0, 6, filled("a"))
    assert bench.shard.machine.values == {"a": 0}
    assert [machine.life for machine in bench.machines] == [["loaded", "unloaded"], ["loaded"]]


def test_closing_sends_everybody_away() -> None:
    bench = started()
    bench.log.holds = True
    bench.put("a", 1)
    bench.runtime.close()
    assert bench.answers == ["NOT_COORDINATOR"]


# time


def test_a_machine_is_ticked_when_its_deadline_has_come() -> None:
    bench = started()
    bench.machines[0].alarm_ms = bench.clock.ms + 10
    bench.get("a")
    assert bench.wakes == 1
    bench.runtime.poll()
    assert bench.log.batches == []
    bench.clock.ms += 10
    bench.runtime.poll()
    assert bench.machines[0].values == {"ticks": 2}
    assert bench.runtime.deadline_ms() is None


def test_an_answer_is_given_once_and_never_after_it_was_cancelled() -> None:
    answers: list[str] = []
    waiting: Waiting[str] = Waiting(answers.append)
    waiting("first")
    waiting("second")
    cancelled: Waiting[str] = Waiting(answers.append)
    cancelled.when_cancelled = lambda: answers.append("cancelled")
    cancelled.cancel()
    cancelled.cancel()
    cancelled("late")
    assert answers == ["first", "cancelled"]
