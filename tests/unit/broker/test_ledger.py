"""The ledger: who holds bytes, who waits for room, and who is cut off."""

from __future__ import annotations

from tidelog.broker.ledger import Account


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
    return Account("some_bytes", limit, clock), clock


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


def test_who_waits_goes_on_when_there_is_room_the_first_first() -> None:
    account, _ = made()
    holder, first, second = Peer(account), Peer(account), Peer(account)
    account.hold(holder, 100)
    account.wait(first, first.resume)
    account.wait(second, lambda: account.hold(second, 5))
    account.hold(holder, 100)
    assert first.resumed == 0
    account.hold(holder, 99)
    assert (first.resumed, account.used) == (1, 104)
    account.hold(holder, 0)
    assert first.resumed == 1, "once"


def test_who_keeps_others_waiting_is_cut_off_after_a_second_and_nobody_else() -> None:
    account, clock = made()
    old, young, waiting = Peer(account), Peer(account), Peer(account)
    account.hold(old, 60)
    clock.now_s += 0.5
    account.hold(young, 60)
    clock.now_s += 2
    account.enforce()
    assert not old.is_cut_off, "nobody waits"
    account.wait(waiting, waiting.resume)
    account.enforce()
    assert (old.is_cut_off, young.is_cut_off, waiting.resumed, account.used) == (True, False, 1, 60)
    assert account.refused == 1


def test_a_young_holder_has_its_second() -> None:
    account, clock = made()
    young, waiting = Peer(account), Peer(account)
    account.hold(young, 100)
    account.wait(waiting, waiting.resume)
    clock.now_s += 0.9
    account.enforce()
    assert not young.is_cut_off and not waiting.resumed


def test_at_twice_the_limit_the_longest_holders_go_at_once_and_never_the_one_who_asks() -> None:
    account, _ = made()
    peers = [Peer(account) for _ in range(30)]
    for peer in peers:
        account.hold(peer, 30)
        assert account.used <= 200
        assert not peer.is_cut_off
    assert [peer.is_cut_off for peer in peers] == [True] * 24 + [False] * 6
    account.hold(peers[-1], 1000)
    assert [peer.is_cut_off for peer in peers] == [True] * 29 + [False]
    assert account.used == 1000
