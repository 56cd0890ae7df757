"""Anomalies, planted one by one in a good history. Each function changes the history and says whether it could."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.chaos.generate import COMPACTED, GROUP
from tests.chaos.history import Action, Commit, Committed, Disown, History, Op, Own, Poll, Send, Total

Plant = Callable[[History], bool]
PLANTS: dict[str, Plant] = {}
T = TypeVar("T", bound=Action)


def plant(name: str) -> Callable[[Plant], Plant]:
    def register(function: Plant) -> Plant:
        PLANTS[name] = function
        return function

    return register


def each(history: History, kind: type[T], topic: str = "") -> Iterator[tuple[Op, T]]:
    for op in history.ops:
        for action in op.actions:
            if isinstance(action, kind) and getattr(action, "key", "").startswith(topic):
                yield op, action


def late(history: History, process: str, *actions: Action) -> Op:
    """One more operation, behind all others."""
    time = max(max(op.start, op.end or 0, op.decided or 0) for op in history.ops) + 10
    op = Op(process=process, number=10**6 + len(history.ops), start=time, end=time + 5, outcome="ok")
    op.actions = list(actions)
    history.ops.append(op)
    return op


def polls_by_op(op: Op) -> dict[str, list[Poll]]:
    found: dict[str, list[Poll]] = defaultdict(list)
    for action in op.actions:
        if isinstance(action, Poll):
            found[action.key].append(action)
    return found


def drop(history: History, key: str, value: str) -> None:
    """Nobody ever saw it."""
    for op in history.ops:
        op.actions = [
            action
            for action in op.actions
            if not (isinstance(action, Poll) and action.key == key and action.value == value)
        ]


def seen(history: History) -> dict[tuple[str, str], int]:
    return {(poll.key, poll.value): poll.offset for _, poll in each(history, Poll)}


@plant("inconsistent-offsets")
def _(history: History) -> bool:
    for _, poll in each(history, Poll):
        late(history, "x", Poll(poll.key, "another", poll.offset))
        return True
    return False


@plant("duplicate")
def _(history: History) -> bool:
    for _, poll in each(history, Poll):
        late(history, "x", Poll(poll.key, poll.value, 10**6))
        return True
    return False


@plant("lost-write")
def _(history: History) -> bool:
    there = seen(history)
    for op, send in each(history, Send):
        if op.outcome == "ok" and send.offset is not None and (send.key, send.value) in there:
            drop(history, send.key, send.value)
            return True
    return False


@plant("unseen")
def _(history: History) -> bool:
    there = seen(history)
    for op, send in each(history, Send):
        if op.outcome == "ok" and (send.key, send.value) in there:
            drop(history, send.key, send.value)
            send.offset = None
            return True
    return False


def several_sends(history: History) -> Iterator[tuple[Op, list[Send]]]:
    there = seen(history)
    for op in history.ops:
        sends = [action for action in op.actions if isinstance(action, Send) and (action.key, action.value) in there]
        if op.transactional and len(sends) > 1:
            yield op, sends


@plant("torn-transaction")
def _(history: History) -> bool:
    for op, sends in several_sends(history):
        op.outcome = "unknown"  # it is known only by what was seen of it
        drop(history, sends[0].key, sends[0].value)
        return True
    return False


@plant("phantom")
def _(history: History) -> bool:
    late(history, "x", Poll("t/0", "from nowhere", 10**6))
    return True


@plant("G1a")
def _(history: History) -> bool:
    for op, _ in several_sends(history):
        op.outcome = "fail"
        return True
    return False


@plant("dirty-read")
def _(history: History) -> bool:
    for op, _ in several_sends(history):
        op.decided = max(op.start for op in history.ops) + 100
        return True
    return False


@plant("precommitted-read")
def _(history: History) -> bool:
    for op, sends in several_sends(history):
        op.actions.append(Poll(sends[0].key, sends[0].value, seen(history)[sends[0].key, sends[0].value]))
        return True
    return False


@plant("poll-skip")
def _(history: History) -> bool:
    at: dict[str, int] = {}
    for op in history.ops:
        if op.process == "r0":
            for key, polls in polls_by_op(op).items():
                if key in at and len(polls) > 1:
                    op.actions.remove(polls[0])
                    return True
                at[key] = polls[-1].offset
    return False


@plant("int-poll-skip")
def _(history: History) -> bool:
    for op in history.ops:
        for polls in polls_by_op(op).values():
            if len(polls) > 2:
                op.actions.remove(polls[1])
                return op.process != "last"  # of the last reader it would be a lost write as well
    return False


@plant("nonmonotonic-poll")
def _(history: History) -> bool:
    for op in history.ops:
        if op.process == "r0" and polls_by_op(op):
            late(history, "r0", *op.actions)
            return True
    return False


@plant("int-nonmonotonic-poll")
def _(history: History) -> bool:
    for op in history.ops:
        for polls in polls_by_op(op).values():
            if len(polls) > 1:
                op.actions.append(polls[0])
                return True
    return False


def exchange(one: Send, other: Send) -> None:
    one.value, other.value = other.value, one.value
    one.offset, other.offset = other.offset, one.offset


@plant("nonmonotonic-send")
def _(history: History) -> bool:
    first: dict[tuple[str, str], tuple[Op, Send]] = {}
    for op, send in each(history, Send):
        if send.offset is None or op.outcome != "ok":
            continue
        before = first.setdefault((op.process, send.key), (op, send))
        if before[0] is not op:
            exchange(before[1], send)
            return True
    return False


@plant("int-nonmonotonic-send")
def _(history: History) -> bool:
    for op in history.ops:
        first: dict[str, Send] = {}
        for action in op.actions:
            if isinstance(action, Send) and action.offset is not None:
                before = first.setdefault(action.key, action)
                if before is not action:
                    exchange(before, action)
                    return True
    return False


@plant("G1c")
def _(history: History) -> bool:
    there = seen(history)
    found = [(op, sends[0]) for op, sends in several_sends(history) if op.outcome == "ok"][:2]
    if len(found) < 2:
        return False
    (one, of_one), (other, of_other) = found
    one.actions.insert(0, Poll(of_other.key, of_other.value, there[of_other.key, of_other.value]))
    other.actions.insert(0, Poll(of_one.key, of_one.value, there[of_one.key, of_one.value]))
    return True


@plant("double-owner")
def _(history: History) -> bool:
    for op, disown in each(history, Disown):
        before = [other for other in history.ops if other.start < op.start]
        if any(isinstance(action, Own) and action.keys == disown.keys for other in before for action in other.actions):
            op.actions.remove(disown)
            late(history, "intruder", Own(GROUP, disown.keys))
            return True
    return False


@plant("zombie-commit")
def _(history: History) -> bool:
    owners = [op.process for op, own in each(history, Own) if "in/0" in own.keys]
    highest = [commit.offset for op, commit in each(history, Commit) if commit.key == "in/0"]
    if not highest or len(set(owners)) < 2:
        return False
    zombie = next(owner for owner in owners if owner != owners[-1])
    late(history, zombie, Commit(GROUP, "in/0", max(highest)))
    return True


def committed_offsets(history: History) -> list[Commit]:
    return [commit for op, commit in each(history, Commit) if op.outcome == "ok" and commit.offset > 0]


@plant("commit-regressed")
def _(history: History) -> bool:
    for commit in committed_offsets(history):
        late(history, "x", Commit(GROUP, commit.key, commit.offset - 1))
        return True
    return False


@plant("lost-commit")
def _(history: History) -> bool:
    for commit in committed_offsets(history):
        late(history, "x", Committed(GROUP, commit.key, None))
        return True
    return False


@plant("aborted-commit")
def _(history: History) -> bool:
    late(history, "x", Commit(GROUP, "in/0", 10**6)).outcome = "fail"
    late(history, "x", Committed(GROUP, "in/0", 10**6))
    return True


@plant("phantom-commit")
def _(history: History) -> bool:
    late(history, "x", Committed(GROUP, "in/0", 10**6))
    return True


@plant("commit-skip")
def _(history: History) -> bool:
    for commit in committed_offsets(history):
        for op, poll in each(history, Poll, "in"):
            if op.process.startswith("m") and poll.key == commit.key and poll.offset < commit.offset:
                for member in history.ops:
                    if member.process.startswith("m"):
                        member.actions = [action for action in member.actions if action != poll]
                return True
    return False


@plant("output-missing")
def _(history: History) -> bool:
    for _, poll in each(history, Poll, "out"):
        if any(op.outcome == "ok" and send.value == poll.value for op, send in each(history, Send, "out")):
            drop(history, poll.key, poll.value)
            return True
    return False


@plant("output-duplicate")
def _(history: History) -> bool:
    for _, poll in each(history, Poll, "out/0"):
        late(history, "x", Send("out/0", f"{poll.value}again", 10**6))
        late(history, "y", Poll("out/0", f"{poll.value}again", 10**6))
        return True
    return False


@plant("output-invented")
def _(history: History) -> bool:
    late(history, "x", Send("out/0", "invented", 10**6))
    late(history, "y", Poll("out/0", "invented", 10**6))
    return True


@plant("output-reordered")
def _(history: History) -> bool:
    polls = [poll for op, poll in each(history, Poll, "out/0") if op.process == "last"]
    if len(polls) < 2:
        return False
    one, other = polls[0], polls[1]
    values = {one.value: other.value, other.value: one.value}
    for _, poll in each(history, Poll, "out/0"):
        poll.value = values.get(poll.value, poll.value)
    for _, send in each(history, Send, "out/0"):
        send.value = values.get(send.value, send.value)
    return True


def _kept(history: History) -> list[str]:
    """The keys of which the last reads found a value."""
    last = {poll.value.partition("=")[0]: poll for op, poll in each(history, Poll, COMPACTED) if op.process == "last"}
    return [name for name, poll in last.items() if "=~" not in poll.value]


def _is_clear(history: History, name: str) -> bool:
    """Whether it is known of each send under the key where it stands, or that it failed."""
    sends = [(op, send) for op, send in each(history, Send, COMPACTED) if send.value.startswith(f"{name}=")]
    return all(op.outcome == "fail" or (op.outcome == "ok" and send.offset is not None) for op, send in sends)


@plant("lost-key")
def _(history: History) -> bool:
    for name in _kept(history):
        if _is_clear(history, name):
            for op in history.ops:
                op.actions = [a for a in op.actions if not (isinstance(a, Poll) and a.value.startswith(f"{name}="))]
            return True
    return False


@plant("stale-key")
def _(history: History) -> bool:
    for name in _kept(history):
        late(history, "x", Send(COMPACTED, f"{name}=newer", 10**6))
        return True
    return False


@plant("revived-key")
def _(history: History) -> bool:
    for name in _kept(history):
        late(history, "x", Send(COMPACTED, f"{name}=~gone", 10**6))
        return True
    return False


@plant("wrong-total")
def _(history: History) -> bool:
    late(history, "auditor", Total("bank/0", 3, 299))
    return True
