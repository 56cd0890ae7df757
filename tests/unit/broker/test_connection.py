"""A connection: frames out of any splits, answers in order, bounds on what it holds, buffers given back once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker.fakes import Link, framed
from tidelog.broker.connection import ANSWER_BYTES_MAX, PIPELINED_REQUESTS_MAX, Connection, Slot
from tidelog.kernel.errors import ProtocolError


class Body(bytes):
    """Shown by its size: hypothesis would print every byte of it."""

    def __repr__(self) -> str:
        return f"Body({len(self)} bytes)"


bodies = st.binary(max_size=30) | st.integers(0, 400_000).map(lambda size: Body(bytes([size % 251]) * size))


def echo(connection: Connection, frame: memoryview) -> Sequence[bytes]:
    return [b"<" + bytes(frame) + b">"]


class Parking:
    """Every request waits; the test answers when it likes."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.frames: list[bytes] = []
        self.dropped: list[int] = []

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        number = len(self.slots)
        slot = connection.park()
        slot.on_drop = lambda: self.dropped.append(number)
        self.slots.append(slot)
        self.frames.append(bytes(frame))


# frames


@settings(max_examples=60)
@given(
    st.tuples(st.lists(st.binary(max_size=30), max_size=12), st.lists(st.integers(1, 9), min_size=1, max_size=9))
    | st.tuples(st.lists(bodies, max_size=6), st.lists(st.integers(3_000, 300_000), min_size=1, max_size=20))
)
def test_frames_arrive_whole_and_in_order_however_they_are_split(case: tuple[list[bytes], list[int]]) -> None:
    frames, chunks = case
    seen: list[bytes] = []

    def handle(connection: Connection, frame: memoryview) -> None:
        seen.append(bytes(frame))

    link = Link(handle)
    stream = memoryview(b"".join(map(framed, frames)))
    for size in itertools.cycle(chunks):
        if not stream:
            break
        link.send(bytes(stream[:size]))
        stream = stream[size:]
        assert len(link.buffers.taken) <= 1
    assert seen == frames
    assert not link.buffers.taken, "an idle connection owns no buffer"
    link.lose()


@settings(max_examples=20)
@given(frames=st.lists(bodies, min_size=1, max_size=5), cut=st.integers(1, 1000))
def test_a_connection_that_dies_within_a_frame_gives_its_buffer_back(frames: list[bytes], cut: int) -> None:
    link = Link(echo)
    stream = b"".join(map(framed, frames))
    link.send(stream[: -min(cut, len(stream))])
    link.lose()
    assert not link.buffers.taken


def test_byte_by_byte() -> None:
    link = Link(echo)
    link.send(framed(b"one") + framed(b"") + framed(b"three"), chunk=1)
    assert link.answers == b"<one><><three>"


def test_memory_grows_as_bytes_arrive_not_as_the_peer_announces() -> None:
    link = Link(echo, frame_bytes_max=100 << 20)
    announced = (100 << 20).to_bytes(4, "big")
    link.send(announced)
    assert link.buffers.taken_bytes_max <= 64 * 1024
    link.send(bytes(10_000))
    assert link.buffers.taken_bytes_max <= 128 * 1024
    link.send(bytes(1 << 20), chunk=65_536)
    assert sum(map(len, link.buffers.taken.values())) <= 8 << 20
    link.lose()
    assert not link.buffers.taken


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_size_that_is_not_allowed_aborts_before_anything_is_allocated(size: int, caplog: Any) -> None:
    link = Link(echo, frame_bytes_max=1000)
    link.send(framed(b"fine") + size.to_bytes(4, "big", signed=True) + b"more")
    assert link.transport.closed == "abort"
    assert link.buffers.taken_bytes_max == 0
    assert f"a frame of {size} bytes; the limit (socket.request.max.bytes) is 1000" in caplog.text
    assert len(caplog.records) == 1


def test_the_largest_frame_that_is_allowed() -> None:
    link = Link(echo, frame_bytes_max=1000)
    link.send(framed(b"x" * 1000), chunk=7)
    assert link.answers == b"<" + b"x" * 1000 + b">"


def test_a_size_that_is_not_allowed_aborts_when_it_comes_in_pieces() -> None:
    link = Link(echo, frame_bytes_max=1000)
    link.send(framed(b"fine")[:3])
    link.send(framed(b"fine")[3:] + b"\x7f")
    link.send(b"\xff\xff\xff")
    assert link.transport.closed == "abort"
    link.lose()
    assert not link.buffers.taken


def test_a_protocol_error_aborts_and_what_follows_is_not_looked_at() -> None:
    seen: list[bytes] = []

    def handle(connection: Connection, frame: memoryview) -> None:
        seen.append(bytes(frame))
        if frame == b"bad":
            raise ProtocolError("no such thing")

    for chunk in (1, 1 << 20):
        seen.clear()
        link = Link(handle)
        link.send(framed(b"good") + framed(b"bad") + framed(b"later"), chunk)
        assert (link.transport.closed, seen) == ("abort", [b"good", b"bad"])
        link.lose()
        assert not link.buffers.taken


# answers


def test_answers_of_one_read_leave_in_one_write() -> None:
    link = Link(echo)
    link.send(framed(b"a") + framed(b"b") + framed(b"c"))
    assert link.transport.written == [b"<a><b><c>"]


@settings(max_examples=60)
@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_slots_filled_in_any_order_leave_in_the_order_of_the_requests(order: list[int], at_once: set[int]) -> None:
    slots: dict[int, Slot] = {}

    def handle(connection: Connection, frame: memoryview) -> Sequence[bytes] | None:
        number = frame[0]
        if number in at_once:
            return [bytes([number])]
        slots[number] = connection.park()
        return None

    link = Link(handle)
    for number in range(6):
        link.send(framed(bytes([number])))
    filled = set(at_once)
    for number in order:
        if number in slots:
            slots[number].fill([bytes([number])])
            filled.add(number)
        ready = next((n for n in range(6) if n not in filled), 6)
        assert link.answers == bytes(range(ready)), "nothing leaves early, nothing that is next waits"


def test_an_answer_given_within_the_handler_keeps_its_place() -> None:
    """A coordinator answers a heartbeat at once although its handler parked it."""

    def handle(connection: Connection, frame: memoryview) -> Sequence[bytes] | None:
        if frame[0] % 2:
            return [bytes(frame)]
        slot = connection.park()
        slot.fill([bytes(frame)])
        return None

    link = Link(handle)
    link.send(b"".join(framed(bytes([number])) for number in range(10)))
    assert link.answers == bytes(range(10))
    assert link.connection.is_idle


def test_a_slot_is_filled_once() -> None:
    parking = Parking()
    link = Link(parking)
    link.send(framed(b""))
    parking.slots[0].fill([b"first"])
    parking.slots[0].fill([b"second"])
    assert link.answers == b"first"


def test_a_request_without_an_answer_takes_no_place() -> None:
    """Produce with acks=0."""
    link = Link(lambda connection, frame: None if frame == b"silent" else [bytes(frame)])
    link.send(framed(b"silent") + framed(b"loud") + framed(b"silent"))
    assert link.answers == b"loud"
    assert link.connection.is_idle


# losing the connection


def test_a_lost_connection_drops_who_waits_and_later_answers_go_nowhere() -> None:
    parking = Parking()
    link = Link(parking)
    link.send(framed(b"") * 3)
    parking.slots[1].fill([b"answered, but behind one that waits"])
    link.lose()
    assert parking.dropped == [0, 2]
    for slot in parking.slots:
        slot.fill([b"too late"])
    assert link.answers == b""
    assert parking.dropped == [0, 2]


def test_the_listener_counts_connections_once() -> None:
    link = Link(echo)
    assert (link.metrics.connections_open, link.metrics.connections_accepted) == (1, 1)
    link.lose()
    link.listener.closed(link.connection)
    assert link.metrics.connections_open == 0


def test_closing_in_the_middle_of_a_buffer_leaves_the_rest_unread_and_sends_what_was_answered() -> None:
    """acks=0 that failed: the client hears of it by the end of the connection, but of its earlier requests by their
    answers."""
    seen: list[bytes] = []

    def handle(connection: Connection, frame: memoryview) -> Sequence[bytes] | None:
        seen.append(bytes(frame))
        if frame == b"end":
            connection.close()
            return None
        return [bytes(frame)]

    for chunk in (1, 6, 1 << 20):
        seen.clear()
        link = Link(handle)
        link.send(framed(b"one") + framed(b"end") + framed(b"later"), chunk)
        assert (link.transport.closed, seen, link.answers) == ("close", [b"one", b"end"], b"one")
        link.lose()
        assert not link.buffers.taken


def test_aborting_in_the_middle_of_a_buffer_gives_it_back_once() -> None:
    def handle(connection: Connection, frame: memoryview) -> None:
        connection.abort()
        connection.connection_lost(None)  # some transports do so at once

    for chunk in (1, 5, 1 << 20):
        link = Link(handle)
        link.send(framed(b"x" * 9) * 3, chunk)
        assert not link.buffers.taken


# back-pressure


def requests(count: int) -> bytes:
    return b"".join(framed(number.to_bytes(2, "big")) for number in range(count))


@pytest.mark.parametrize("chunk", [1, 5, 6 * 100, 1 << 20])
def test_too_many_waiting_requests_stop_the_reading_and_their_answers_resume_it(chunk: int) -> None:
    parking = Parking()
    link = Link(parking)
    total = 3 * PIPELINED_REQUESTS_MAX
    link.send(requests(total), chunk)
    assert len(parking.slots) == PIPELINED_REQUESTS_MAX
    assert not link.transport.reading
    for number, slot in enumerate(parking.slots):
        slot.fill([b"."])
        assert len(parking.slots) - number - 1 <= PIPELINED_REQUESTS_MAX
        link.flow(chunk)
    assert len(parking.slots) == total, "the list grew while it was walked: all were answered"
    assert parking.frames == [number.to_bytes(2, "big") for number in range(total)]
    assert link.answers == b"." * total
    assert link.transport.reading
    assert link.unsent == 0 and not link.buffers.taken


def test_a_peer_that_does_not_read_is_not_read() -> None:
    link = Link(echo, high_water=100)
    link.send(requests(1000), chunk=60)
    handled = link.answers.count(b"<")
    assert handled < 50
    assert not link.transport.reading
    while link.unsent:
        link.transport.peer_reads()
        link.flow(60)
    link.transport.peer_reads()
    assert link.answers == b"".join(b"<" + number.to_bytes(2, "big") + b">" for number in range(1000))
    assert link.transport.reading


def test_within_one_buffer_too_a_peer_that_does_not_read_is_not_served() -> None:
    """A fetch of a hundred bytes has an answer of megabytes: a buffer full of them must not be answered in one go."""
    handled = 0

    def handle(connection: Connection, frame: memoryview) -> Sequence[bytes]:
        nonlocal handled
        handled += 1
        return [b"head", bytes(ANSWER_BYTES_MAX // 2)]

    link = Link(handle, high_water=1 << 16)
    link.send(requests(200))
    assert handled <= 3
    link.transport.peer_reads()
    assert handled <= 6
    while handled < 200:
        link.transport.peer_reads()
    assert link.unsent == 0
    link.lose()
    assert not link.buffers.taken


def test_large_answers_behind_one_that_waits_stop_the_reading() -> None:
    parking = Parking()

    def handle(connection: Connection, frame: memoryview) -> Sequence[bytes] | None:
        if len(parking.slots) == 0:
            return parking(connection, frame)
        return [bytes(ANSWER_BYTES_MAX // 4)]

    link = Link(handle)
    link.send(requests(100), chunk=6)
    assert not link.transport.reading
    assert link.unsent >= 90 * 6
    parking.slots[0].fill([b"at last"])
    link.flow()
    assert len(link.answers) == len(b"at last") + 99 * (ANSWER_BYTES_MAX // 4)
    assert link.transport.reading


def test_large_answers_that_were_parked_count_as_well() -> None:
    parking = Parking()
    link = Link(parking)
    link.send(requests(5), chunk=6)
    for slot in parking.slots[1:]:
        slot.fill([bytes(ANSWER_BYTES_MAX // 3)])
    link.send(requests(10), chunk=6)
    assert len(parking.slots) <= 6
    parking.slots[0].fill([b""])
    link.flow()
    assert len(parking.slots) == 15


def test_answers_that_resume_the_reading_may_find_a_bad_frame() -> None:
    parking = Parking()
    link = Link(parking, frame_bytes_max=1000)
    link.send(requests(PIPELINED_REQUESTS_MAX) + b"\xff\xff\xff\xff")
    for slot in parking.slots:
        slot.fill([b"."])
    assert link.transport.closed == "abort"


# before the node is ready


def test_what_connects_early_is_read_when_the_node_serves() -> None:
    link = Link(echo)
    link.listener._is_serving = False
    early = Link.__new__(Link)
    early.__dict__.update(link.__dict__)
    early.connection = link.listener._accept()
    early.transport = type(link.transport)(early.connection)
    early.connection.connection_made(early.transport)
    assert not early.transport.reading
    link.listener.start_serving()
    assert early.transport.reading
    early.send(framed(b"patience"))
    assert early.answers == b"<patience>"


def test_a_connection_that_is_made_after_the_listener_closed_is_ended() -> None:
    """The loop had accepted it before; nobody would look at it again."""
    link = Link(echo)
    link.listener.close()
    assert link.transport.closed == "abort"
    late = link.listener._accept()
    transport = type(link.transport)(late)
    late.connection_made(transport)
    assert transport.closed == "abort"
    late.connection_lost(None)
    link.lose()
    assert link.metrics.connections_open == 0


# idle connections


def test_idle_connections_are_ended_and_those_that_wait_are_not() -> None:
    """Aborted, not closed: a peer that has not read for ten minutes would keep a closing connection for ever."""
    parking = Parking()
    link = Link(parking)
    link.clock.now_s += 599
    assert link.listener.close_idle() == 0
    link.send(framed(b"waits"))
    link.clock.now_s += 601
    assert link.listener.close_idle() == 0
    parking.slots[0].fill([b"answer that is not read"])
    assert link.listener.close_idle() == 1
    assert link.transport.closed == "abort"
