from __future__ import annotations

from tidelog.coordinator.outbox import ANSWERS_A_TURN, Outbox


def filled(count: int) -> tuple[Outbox, list[int], list[str]]:
    sent: list[int] = []
    woken: list[str] = []
    outbox = Outbox(lambda: woken.append("more"))
    for number in range(count):
        outbox.send(sent.append, number)
    return outbox, sent, woken


def test_few_answers_leave_at_once() -> None:
    outbox, sent, woken = filled(ANSWERS_A_TURN)
    outbox.drain()
    assert sent == list(range(ANSWERS_A_TURN))
    assert not woken
    assert not outbox.is_behind


def test_many_answers_leave_in_turns_and_in_order() -> None:
    outbox, sent, woken = filled(2 * ANSWERS_A_TURN + 1)
    outbox.drain()
    assert len(sent) == ANSWERS_A_TURN
    assert woken == ["more"]
    outbox.send(sent.append, -1)
    outbox.drain()
    assert len(sent) == ANSWERS_A_TURN, "the requests of a turn do not make it longer"
    outbox.next_turn()
    assert woken == ["more", "more"]
    outbox.next_turn()
    assert sent == [*range(2 * ANSWERS_A_TURN + 1), -1]
    assert not outbox.is_behind


def test_the_last_turn_sends_all() -> None:
    outbox, sent, _ = filled(5 * ANSWERS_A_TURN)
    outbox.drain()
    outbox.drain_all()
    assert sent == list(range(5 * ANSWERS_A_TURN))


def test_an_answer_that_brings_another_one_is_followed_by_it() -> None:
    outbox, sent, _ = filled(1)
    outbox.send(lambda number: (outbox.send(sent.append, number + 1), outbox.drain()), 7)
    outbox.drain()
    assert sent == [0, 8]
