"""Good histories, of any size: a model of a log that does everything right, with clients that crash, time out and
abort. For the tests of the checker, and to see how long a large history takes (`./dev chaos generate`)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.chaos.history import (
    Action,
    Assign,
    Bank,
    Commit,
    Committed,
    Copy,
    Disown,
    End,
    History,
    Meta,
    Op,
    Outcome,
    Own,
    Poll,
    Send,
    Subscribe,
    Total,
)

GROUP = "copiers"
STEP_NS = 10


@dataclass
class Txn:
    state: str = "open"


@dataclass
class Partition:
    """value None: a marker. Records without a transaction have a finished one."""

    records: list[tuple[str | None, Txn]] = field(default_factory=list)

    def append(self, value: str | None, txn: Txn) -> int:
        self.records.append((value, txn))
        return len(self.records) - 1

    def read(self, start: int, limit: int) -> tuple[list[tuple[int, str]], int]:
        """Committed records from `start`, up to the last stable offset, and where to go on."""
        found: list[tuple[int, str]] = []
        while start < len(self.records) and len(found) < limit:
            value, txn = self.records[start]
            if txn.state == "open":
                break
            if value is not None and txn.state == "committed":
                found.append((start, value))
            start += 1
        return found, start


class Model:
    def __init__(self, seed: int, partitions: int) -> None:
        self.chance = random.Random(seed)
        self.time = 0
        self.keys = {f"t/{number}": Partition() for number in range(partitions)}
        self.keys |= {f"in/{number}": Partition() for number in range(2)}
        self.keys |= {f"out/{number}": Partition() for number in range(2)}
        self.ops: list[Op] = []
        self.committed: dict[str, int] = {}
        self.values = 0
        self._numbers: dict[str, int] = {}

    def tick(self) -> int:
        self.time += STEP_NS
        return self.time

    def value(self) -> str:
        self.values += 1
        return f"v{self.values}"

    def begin(self, process: str, *actions: Action, transactional: bool = False) -> Op:
        number = self._numbers[process] = self._numbers.get(process, 0) + 1
        op = Op(
            process=process,
            number=number,
            start=self.tick(),
            transactional=transactional,
            actions=list(actions),
        )
        self.ops.append(op)
        return op

    def end(self, op: Op, outcome: Outcome) -> None:
        op.outcome = outcome
        op.end = self.tick()

    def note(self, process: str, *actions: Action) -> None:
        self.end(self.begin(process, *actions), "ok")


class Sender:
    """Idempotent sends, each an operation."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name

    def step(self) -> None:
        model = self._model
        topic = model.chance.choice(("t", "in"))
        key = model.chance.choice([key for key in model.keys if key.startswith(topic)])
        send = Send(key, model.value())
        op = model.begin(self._name, send)
        luck = model.chance.random()
        if luck < 0.05:
            return model.end(op, "fail")
        if luck < 0.1:
            return model.end(op, "unknown")
        offset = model.keys[key].append(send.value, Txn("committed"))
        if luck < 0.15:
            return model.end(op, "unknown")
        if luck < 0.17:  # a duplicate that the broker knew: no offset is told
            return model.end(op, "ok")
        send.offset = offset
        return model.end(op, "ok")


class Mixer:
    """Transactions of sends and polls; some abort, some die at each stage."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name
        self._life = 0
        self._be_born()

    def _be_born(self) -> None:
        self._life += 1
        self._op: Op | None = None
        self._touched: set[str] = set()
        self._at: dict[str, int] = {}
        keys = [key for key in self._model.keys if key.startswith("t")]
        for key in keys:
            self._at[key] = self._model.chance.randrange(len(self._model.keys[key].records) + 1)
        self._process = f"{self._name}.{self._life}"
        self._model.note(self._process, Assign(tuple(keys)))

    def step(self) -> None:
        model = self._model
        if self._op is None:
            self._op = model.begin(self._process, transactional=True)
            self._txn = Txn()
            self._touched = set()
        luck = model.chance.random()
        if luck < 0.45:
            self._send(self._op)
        elif luck < 0.8:
            self._poll(self._op)
        elif luck < 0.83:
            self._finish("aborted")  # it crashed: nobody knows, the broker's time-out aborts
            self._be_born()
        else:
            self._end(self._op)

    def _send(self, op: Op) -> None:
        key = self._model.chance.choice(list(self._at))
        send = Send(key, self._model.value())
        op.actions.append(send)
        offset = self._model.keys[key].append(send.value, self._txn)
        self._touched.add(key)
        if self._model.chance.random() < 0.9:
            send.offset = offset

    def _poll(self, op: Op) -> None:
        key = self._model.chance.choice(list(self._at))
        found, self._at[key] = self._model.keys[key].read(self._at[key], 4)
        op.actions += [Poll(key, value, offset) for offset, value in found]

    def _finish(self, state: str) -> None:
        self._txn.state = state
        for key in self._touched:
            self._model.keys[key].append(None, self._txn)

    def _end(self, op: Op) -> None:
        model = self._model
        op.decided = model.tick()
        luck = model.chance.random()
        if luck < 0.15:
            self._finish("aborted")
            model.end(op, "fail")
        elif luck < 0.25:
            self._finish(model.chance.choice(("aborted", "committed")))
            model.end(op, "unknown")
            return self._be_born()
        else:
            self._finish("committed")
            model.end(op, "ok")
        self._op = None
        return None

    def close(self) -> None:
        if self._op is not None:
            self._finish("aborted")


class Group:
    """Members that copy `in` to `out` in transactions; partitions move from one to the next."""

    def __init__(self, model: Model, members: int) -> None:
        self._model = model
        self._members = [f"m{number}" for number in range(members)]
        self._owner: dict[str, str] = {}
        self._at: dict[str, int] = {}
        for member in self._members:
            model.note(member, Subscribe(GROUP))

    def step(self) -> None:
        key = self._model.chance.choice(("in/0", "in/1"))
        if key not in self._owner or self._model.chance.random() < 0.1:
            self._move(key)
        self._copy(key, self._owner[key])

    def _move(self, key: str) -> None:
        model = self._model
        if key in self._owner:
            model.note(self._owner[key], Disown(GROUP, (key,)))
        member = self._owner[key] = model.chance.choice(self._members)
        self._at[key] = model.committed.get(key, 0)
        model.note(member, Own(GROUP, (key,)), Committed(GROUP, key, model.committed.get(key)))

    def _copy(self, key: str, member: str) -> None:
        model = self._model
        found, following = model.keys[key].read(self._at[key], 3)
        if not found:
            return
        target = key.replace("in", "out")
        op = model.begin(member, transactional=True)
        op.actions += [Poll(key, value, offset) for offset, value in found]
        copies = [f"{value}@{member}.{op.number}" for _, value in found]
        op.actions += [Send(target, value) for value in copies]
        op.actions.append(Commit(GROUP, key, following))
        op.decided = model.tick()
        luck = model.chance.random()
        txn = Txn("committed" if luck < 0.85 else "aborted")
        for value in copies:
            model.keys[target].append(value, txn)
        model.keys[target].append(None, txn)
        model.end(op, "ok" if luck < 0.75 else "unknown" if luck < 0.9 else "fail")
        if txn.state == "committed":
            model.committed[key] = self._at[key] = following
        else:
            self._move(key)


class Reader:
    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name
        self._at = dict.fromkeys(model.keys, 0)
        model.note(name, Assign(tuple(self._at)))

    def step(self, most: int = 5) -> bool:
        op = self._model.begin(self._name)
        before = dict(self._at)
        for key in self._model.chance.sample(list(self._at), 2) if most < 100 else self._at:
            found, self._at[key] = self._model.keys[key].read(self._at[key], most)
            op.actions += [Poll(key, value, offset) for offset, value in found]
        self._model.end(op, "ok")
        return self._at != before

    def read_all(self) -> None:
        while self.step(1000):
            pass
        self._model.note(self._name, *(End(key, at) for key, at in self._at.items()))


BANK = Bank(topic="bank", accounts=3, total=300)
COMPACTED = "c/0"


class Keeper:
    """Writes and deletes under five keys; a cleaner comes by now and then."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._records: dict[int, str] = {}
        self._end = 0

    def step(self) -> None:
        model = self._model
        if model.chance.random() < 0.1:
            self._clean()
        name = f"k{model.chance.randrange(5)}"
        mark = "~" if model.chance.random() < 0.3 else ""
        send = Send(COMPACTED, f"{name}={mark}{model.value()}")
        op = model.begin("keeper", send)
        luck = model.chance.random()
        if luck < 0.05:
            return model.end(op, "fail")
        if luck < 0.1:
            return model.end(op, "unknown")
        self._records[self._end] = send.value
        if luck >= 0.2:
            send.offset = self._end
        self._end += 1
        return model.end(op, "ok" if luck >= 0.15 else "unknown")

    def _clean(self) -> None:
        last = {value.partition("=")[0]: offset for offset, value in self._records.items()}
        self._records = {
            offset: value for offset, value in self._records.items() if last[value.partition("=")[0]] == offset
        }
        for offset, value in list(self._records.items()):
            if "=~" in value and self._model.chance.random() < 0.5:
                del self._records[offset]

    def read_all(self) -> None:
        model = self._model
        model.note("last", Assign((COMPACTED,)))
        op = model.begin("last", *(Poll(COMPACTED, value, offset) for offset, value in self._records.items()))
        model.end(op, "ok")
        model.note("last", End(COMPACTED, self._end))


class Auditor:
    def __init__(self, model: Model) -> None:
        self._model = model

    def step(self) -> None:
        accounts = self._model.chance.choice((0, BANK.accounts))
        self._model.note("auditor", Total("bank/0", accounts, BANK.total if accounts else 0))


def generate(seed: int, steps: int = 300, partitions: int = 3) -> History:
    model = Model(seed, partitions)
    senders = [Sender(model, f"s{number}") for number in range(2)]
    mixers = [Mixer(model, f"x{number}") for number in range(3)]
    readers = [Reader(model, f"r{number}") for number in range(2)]
    keeper = Keeper(model)
    clients: list[Sender | Mixer | Reader | Group | Keeper | Auditor] = [*senders, *mixers, *readers, Group(model, 3)]
    clients += [keeper, keeper, Auditor(model)]
    for _ in range(steps):
        model.chance.choice(clients).step()
    for mixer in mixers:
        mixer.close()
    Reader(model, "last").read_all()
    keeper.read_all()
    model.note("judge", *(Committed(GROUP, key, offset) for key, offset in model.committed.items()))
    meta = Meta(
        workload="model",
        seed=seed,
        copies=[Copy(source="in", target="out", group=GROUP)],
        compacted=["c"],
        banks=[BANK],
    )
    return History(meta, sorted(model.ops, key=lambda op: op.start))
