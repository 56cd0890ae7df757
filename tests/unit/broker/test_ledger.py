"""The ledger: who holds bytes, who waits for room, and who is cut off."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.ledger import STALE_S, TURN_BYTES, Account, Turn


class Peer:
    def __init__(self, account: Account) -> None:
        self.account = account
        self.is_cut_off = False
        self.resumed = 0

    def cut_off(self, what: str) -> None:
        assert what == "some bytes"
        self.is_cut_off = True
        self.account.forget(self)

    def resume(self) -> None:
        self.resumed += 1


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def made(limit: int = 100) -> tuple[Account, Clock]:
    clock = Clock()
    return Account("some_bytes", limit, clock, lambda callback: callback()), clock


def test_what_is_held_is_counted_and_forgotten_with_its_holder() -> None:
    account, _ = made()
    a, b = Peer(account), Peer(account)
    account.hold(a, 60)
    account.hold(b, 10)
    account.hold(a, 50)
    assert (account.used, account.left, account.is_full) == (60, 40, False)
    account.forget(a)
    account.forget(a)
    assert account.used == 10
    account.hold(b, 0)
    assert account.used == 0


def test_who_waits_goes_on_when_there_is_room_the_last_first() -> None:
    account, _ = made()
    holder, first, second = Peer(account), Peer(account), Peer(account)
    account.hold(holder, 100)
    account.wait(first, first.resume)
    account.wait(second, lambda: account.hold(second, 5))
    account.hold(holder, 100)
    assert account.used == 100
    account.hold(holder, 98)
    assert (first.resumed, account.used) == (0, 103), "the second took what there was"
    account.hold(holder, 0)
    account.hold(second, 0)
    assert first.resumed == 1, "once"


def test_who_keeps_others_waiting_is_cut_off_after_a_while_and_nobody_else() -> None:
    account, clock = made()
    old, young, waiting = Peer(account), Peer(account), Peer(account)
    account.hold(old, 60)
    clock.now_s += STALE_S - 1
    account.hold(young, 60)
    clock.now_s += 2
    account.enforce()
    assert not old.is_cut_off, "nobody waits"
    account.wait(waiting, waiting.resume)
    account.enforce()
    assert (old.is_cut_off, young.is_cut_off, waiting.resumed, account.used) == (True, False, 1, 60)
    assert account.refused == 1


def test_those_that_wait_themselves_are_cut_off_only_when_nobody_else_is_to_blame() -> None:
    account, clock = made()
    first, second, slow = Peer(account), Peer(account), Peer(account)
    for peer in (first, second, slow):
        account.hold(peer, 40)
    account.wait(first, first.resume)
    account.wait(second, second.resume)
    clock.now_s += STALE_S
    account.enforce()
    assert (first.is_cut_off, second.is_cut_off, slow.is_cut_off) == (False, False, True)
    account.hold(second, 60)
    account.wait(first, first.resume)
    account.wait(second, second.resume)
    account.enforce()
    assert (first.is_cut_off, second.is_cut_off) == (True, False)


def test_at_twice_the_limit_the_longest_holders_go_at_once_and_never_the_one_who_asks() -> None:
    account, _ = made()
    peers = [Peer(account) for _ in range(30)]
    for peer in peers:
        account.hold(peer, 30)
        assert account.used < 200
        assert not peer.is_cut_off
    gone = [peer.is_cut_off for peer in peers]
    assert gone == sorted(gone, reverse=True) and 4 <= gone.count(False) <= 6
    account.hold(peers[-1], 1000)
    assert [peer.is_cut_off for peer in peers] == [True] * 29 + [False]
    assert account.used == 1000


def test_what_is_cut_off_counts_until_it_is_gone() -> None:
    account = Account("some_bytes", 100, Clock(), lambda callback: callback(), waits_at=200)
    lingering, newcomer, waiting = Peer(account), Peer(account), Peer(account)
    lingering.cut_off = lambda what: None  # type: ignore[method-assign]
    account.hold(lingering, 150)
    account.hold(newcomer, 60)
    assert (account.used, account.refused, account.must_wait) == (210, 1, True)
    account.hold(lingering, 500)
    account.wait(waiting, waiting.resume)
    assert (account.used, waiting.resumed) == (210, 0)
    account.forget(lingering)
    assert (account.used, waiting.resumed) == (60, 1)


def test_a_thousand_that_wait_are_woken_one_after_the_other() -> None:
    later: list[Callable[[], None]] = []
    account = Account("some_bytes", 100, Clock(), later.append)
    holder = Peer(account)
    account.hold(holder, 100)
    woken = []

    class Eager(Peer):
        def resume(self) -> None:
            woken.append(self)
            self.account.hold(self, 50)
            self.account.hold(self, 0)

    waiting = [Eager(account) for _ in range(2000)]
    for peer in waiting:
        account.wait(peer, peer.resume)
    account.hold(holder, 0)
    assert woken == []
    for callback in later:
        callback()
    assert woken == waiting[::-1]


def test_a_turn_hands_out_so_much_and_the_others_come_in_the_next_the_first_first() -> None:
    later: list[Callable[[], None]] = []
    turn = Turn(later.append)
    served: list[int] = []

    class Reader(Peer):
        def __init__(self, number: int) -> None:
            self.number = number

        def resume(self) -> None:
            served.append(self.number)
            turn.spend(TURN_BYTES // 2)

    turn.spend(TURN_BYTES)
    readers = [Reader(number) for number in range(5)]
    for reader in (*readers, *readers):
        assert turn.is_spent
        turn.wait(reader, reader.resume)
    for count in (2, 4, 5):
        assert len(later) == 1
        later.pop()()
        assert served == list(range(count))
