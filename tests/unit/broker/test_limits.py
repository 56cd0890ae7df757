"""Limits as a peer meets them: turned away, held back, not read, cut off; and what is logged of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from tests.unit.broker.fakes import Link, World, framed
from tidelog.broker.connection import SCARCE_REQUESTS_MAX, Connection, Slot
from tidelog.broker.connection_limits import Rate, parse_overrides
from tidelog.broker.peer_log import LINES_MAX, WINDOW_S, PeerLog


def echo(connection: Connection, frame: memoryview) -> Sequence[bytes]:
    return [b"<" + bytes(frame) + b">"]


def is_served(link: Link) -> bool:
    return not link.transport.closed and link.transport.reading


# who may connect


def test_one_address_too_often_is_turned_away_and_others_are_not() -> None:
    world = World({"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "10.0.0.9:3, [::1]:0"})
    listener = world.listener(echo)
    same = [Link(echo, world=world, listener=listener, host="10.0.0.1") for _ in range(3)]
    other = Link(echo, world=world, listener=listener, host="10.0.0.2")
    more = [Link(echo, world=world, listener=listener, host="10.0.0.9") for _ in range(4)]
    none = Link(echo, world=world, listener=listener, host="::1")
    assert [link.transport.closed for link in same] == ["", "", "abort"]
    assert is_served(other)
    assert [link.transport.closed for link in more] == ["", "", "", "abort"]
    assert none.transport.closed == "abort"
    assert world.metrics.connections_refused == 3
    same[2].lose()
    same[0].lose()
    assert is_served(Link(echo, world=world, listener=listener, host="10.0.0.1"))


def test_one_connection_too_many_waits_unread_until_another_ends() -> None:
    world = World({"max.connections": "2"})
    listener = world.listener(echo)
    links = [Link(echo, world=world, listener=listener) for _ in range(4)]
    assert [is_served(link) for link in links] == [True, True, False, False]
    links[3].send(framed(b"later"))
    links[0].lose()
    assert [is_served(link) for link in links[1:]] == [True, True, False]
    links[2].lose()
    links[3].flow()
    assert links[3].answers == b"<later>"
    assert listener.close_idle() == 0


def test_one_that_waits_may_leave() -> None:
    world = World({"max.connections": "1"})
    listener = world.listener(echo)
    first, second, third = (Link(echo, world=world, listener=listener) for _ in range(3))
    second.lose()
    first.lose()
    assert is_served(third)
    third.lose()
    assert world.ledger.connections.used == 0


def test_no_more_wait_than_the_backlog_holds() -> None:
    world = World({"max.connections": "1"})
    listener = world.listener(echo, backlog=2)
    links = [Link(echo, world=world, listener=listener) for _ in range(4)]
    assert [link.transport.closed for link in links] == ["", "", "", "abort"]


def test_a_listener_has_a_limit_of_its_own_and_leaves_the_others_alone() -> None:
    world = World({"max.connections": "4", "listener.name.outer.max.connections": "1"})
    outer, inner = world.listener(echo, name="OUTER"), world.listener(echo, name="INNER")
    outside = [Link(echo, world=world, listener=outer) for _ in range(2)]
    inside = [Link(echo, world=world, listener=inner) for _ in range(4)]
    assert [is_served(link) for link in outside] == [True, False]
    assert [is_served(link) for link in inside] == [True, True, True, False]
    outside[0].lose()
    assert is_served(outside[1]) and not is_served(inside[3])
    outside[1].lose()
    assert is_served(inside[3]), "a place that another listener gave up"


def test_the_brokers_own_listener_is_let_in_and_the_longest_idle_of_another_makes_room() -> None:
    world = World({"max.connections": "2"})
    own, other = world.listener(echo), world.listener(echo, name="OTHER")
    links = []
    for _ in range(2):
        links.append(Link(echo, world=world, listener=other))
        world.clock.now_s += 1
    links[0].send(framed(b"busy"))
    from_a_broker = Link(echo, world=world, listener=own)
    assert is_served(from_a_broker)
    assert not own.shrink()
    assert other.shrink() and not other.shrink()
    assert [link.transport.closed for link in links] == ["", "abort"]
    for link in (*links, from_a_broker):
        link.lose()
    assert world.ledger.connections.used == 0


def test_descriptors_are_a_limit_that_nobody_waits_for() -> None:
    world = World(connections_max=2)
    listener = world.listener(echo)
    links = [Link(echo, world=world, listener=listener) for _ in range(3)]
    assert [link.transport.closed for link in links] == ["", "", "abort"]


def test_a_rate_lets_a_seconds_worth_in_at_once_and_the_others_by_and_by() -> None:
    world = World()
    rate = Rate(world.clock.monotonic_s)
    for _ in range(5):
        assert rate.wait_s(5) == 0
        rate.spend()
    assert rate.wait_s(5) == pytest.approx(0.2)
    world.clock.now_s += 0.2
    assert rate.wait_s(5) == pytest.approx(0)
    assert rate.wait_s(0) > 0


def test_overrides_that_make_no_sense_are_passed_over() -> None:
    assert parse_overrides("10.0.0.1:5,nonsense,[::1]:7,host:,:3,a:b") == {"10.0.0.1": 5, "::1": 7}


# what a peer may leave unfinished


def test_a_frame_that_drips_does_not_keep_its_connection_alive() -> None:
    link = Link(echo)
    link.send(framed(b"whole"))
    frame = framed(b"x" * 100)
    for index in range(60):
        link.clock.now_s += 11
        link.send(frame[index : index + 1])
    assert link.listener.close_idle() == 1
    assert link.transport.closed == "abort"


def test_requests_that_come_in_odd_pieces_do_keep_it_alive() -> None:
    link = Link(echo)
    stream = framed(b"x" * 100) * 20
    for start in range(0, len(stream) - 70, 70):
        link.clock.now_s += 400
        link.send(stream[start : start + 70])
        assert link.listener.close_idle() == 0


def test_without_room_for_requests_a_large_one_is_not_read_on_and_small_ones_pass() -> None:
    world = World(request_bytes_max=1 << 20)
    listener = world.listener(echo)
    slow, *others = (Link(echo, world=world, listener=listener) for _ in range(3))
    frame = framed(bytes(900_000))
    for link in (slow, *others):
        link.send(frame[:100_000], chunk=60_000)
    slow.send(frame[100_000:300_000], chunk=60_000)
    for link in others:
        link.send(frame[100_000:], chunk=60_000)
    assert slow.transport.reading and not any(link.transport.reading for link in others)
    small = Link(echo, world=world, listener=listener)
    small.send(framed(b"small"), chunk=3)
    assert small.answers == b"<small>"
    world.clock.now_s += 3.5
    world.ledger.enforce()
    slow.lose()
    assert slow.transport.closed == "abort", "it kept the others waiting"
    for link in others:
        link.flow(60_000)
    assert [len(link.answers) for link in others] == [900_002, 900_002]
    for link in others:
        link.lose()
    assert world.ledger.request_bytes.used == 0
    assert not world.buffers.taken


def test_many_unfinished_frames_stay_within_twice_the_limit() -> None:
    world = World(request_bytes_max=1 << 20)
    listener = world.listener(echo)
    links = [Link(echo, world=world, listener=listener) for _ in range(100)]
    for link in links:
        link.send(framed(bytes(900_000))[:200_000])
        assert sum(map(len, world.buffers.taken.values())) <= 2 << 20
    assert is_served(links[-1]) and links[0].transport.closed == "abort"


# what a peer may leave unread


def test_a_peer_that_takes_nothing_is_ended_and_one_that_takes_a_little_is_not() -> None:
    link = Link(echo, high_water=100)
    link.send(framed(bytes(400)) * 4, chunk=404)
    for _ in range(5):
        link.clock.now_s += 400
        link.transport.unread -= 1
        assert link.listener.close_idle() == 0
    link.clock.now_s += 601
    assert link.listener.close_idle() == 1


def parked(link: Link) -> Slot:
    return link.connection.park()


def test_an_answer_made_in_turn_is_made_when_the_peer_takes_it() -> None:
    made: list[int] = []
    link = Link(lambda connection, frame: None, high_water=100)
    slots = [parked(link) for _ in range(4)]

    def make(number: int) -> Sequence[bytes]:
        made.append(number)
        return [bytes([number]) * 200]

    for number in (2, 1, 3):
        slots[number].fill_in_turn(lambda number=number: make(number))
    assert made == [], "the first one waits"
    slots[0].fill([bytes(200)])
    assert made == []
    for count in (1, 2, 3):
        link.transport.peer_reads()
        assert made == list(range(1, count + 1))
    link.transport.peer_reads()
    assert link.answers == b"".join(bytes([number]) * 200 for number in range(4))
    assert link.listener.ledger.answer_bytes.used == 0


def test_while_an_answer_waits_for_its_turn_nothing_more_is_read() -> None:
    """A client is owed one answer behind the one that waits, not as many as it asked for."""
    waiting: list[Slot] = []
    handled = 0

    def handle(connection: Connection, frame: memoryview) -> None:
        nonlocal handled
        handled += 1
        slot = connection.park()
        if waiting:
            slot.fill_in_turn(lambda: [bytes(200)])
        else:
            waiting.append(slot)

    link = Link(handle)
    link.send(framed(b"fetch") * 50)
    assert (handled, link.transport.reading) == (2, False)
    waiting[0].fill([b"first"])
    link.flow()
    assert (handled, link.transport.reading, len(link.answers)) == (50, True, 5 + 49 * 200)


def test_many_that_wait_anywhere_leave_fewer_places_to_each() -> None:
    world = World()
    listener = world.listener(lambda connection, frame: connection.park() and None)
    world.ledger.parked_bytes.used = world.ledger.parked_bytes.limit
    link = Link(echo, world=world, listener=listener)
    link.send(framed(b"x") * 100)
    assert len(link.connection._slots) == SCARCE_REQUESTS_MAX and not link.transport.reading


def test_a_dropped_connection_makes_nothing_any_more() -> None:
    link = Link(lambda connection, frame: None)
    first, second = parked(link), parked(link)
    second.fill_in_turn(lambda: pytest.fail("nobody reads this"))
    link.lose()
    first.fill([b"late"])


def test_answers_that_nobody_takes_are_counted_and_the_longest_is_cut_off_for_the_next() -> None:
    world = World(answer_bytes_max=1000)
    listener = world.listener(lambda connection, frame: None)
    never = [Link(echo, world=world, listener=listener, high_water=10) for _ in range(3)]
    for link in never:
        parked(link).fill([bytes(600)])
        world.clock.now_s += 1
    assert world.ledger.answer_bytes.used == 1800
    parked(never[2]).fill([bytes(300)])
    assert [link.transport.closed for link in never] == ["abort", "", ""]
    good = Link(echo, world=world, listener=listener)
    parked(good).fill_in_turn(lambda: [b"late but there"])
    assert good.answers == b"", "what was cut off is not gone yet"
    never[0].lose()
    assert good.answers == b"late but there"


# what is logged


def test_bad_peers_get_a_line_each_but_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(1000):
        Link(echo, world=world).send(b"\xff\xff\xff\xff")
    assert len(caplog.records) == LINES_MAX
    world.clock.now_s += WINDOW_S
    Link(echo, world=world).send(b"\xff\xff\xff\xff")
    assert [record.message for record in caplog.records[LINES_MAX:]] == [
        f"{1000 - LINES_MAX} more lines about other peers were left out",
        "closing the connection from 127.0.0.1: a frame of -1 bytes; the limit (socket.request.max.bytes) is 1048576",
    ]


def test_a_quiet_time_says_nothing_of_lines_left_out(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    log = PeerLog(logging.getLogger("tidelog.connection"), world.clock.monotonic_s)
    for _ in range(3):
        log.warning("one")
        world.clock.now_s += WINDOW_S + 1
    assert [record.message for record in caplog.records] == ["one"] * 3
