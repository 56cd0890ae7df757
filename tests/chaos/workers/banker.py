"""A bank in a compacted topic of one partition: a balance for each account, and transfers between two of them in a
transaction. One transactional id speaks for a bank, so its transactions follow each other; who takes over reads
first."""

from __future__ import annotations

import os
from functools import partial

from tests.chaos.banks import ACCOUNTS, OPENING, read_balances
from tests.chaos.history import Assign, Op, Poll, Send, Total
from tests.chaos.labels import ID, labelled
from tests.chaos.workers.base import Worker
from tests.chaos.workers.transactional import Lost, Transactional


class Banker(Transactional):
    def run(self) -> None:
        try:
            self.be_born()
            # Whoever spoke for the bank before is fenced by now, and what he left open is aborted.
            _, balances = read_balances(self.task.servers, self.task.topic)
            while not self.stopping.is_set():
                changes = self._transfer(balances) if balances else {f"a{n}": OPENING for n in range(ACCOUNTS)}
                if self.transaction(partial(self._write, changes)).outcome == "ok":
                    balances |= changes
                self.rest()
        except (Lost, TimeoutError) as lost:
            self.recorder.end(self.recorder.begin(), "ok", f"lost: {lost}")
        os._exit(0)

    def _transfer(self, balances: dict[str, int]) -> dict[str, int]:
        giver, taker = self.chance.sample(sorted(balances), 2)
        amount = self.chance.randint(1, 20)
        return {giver: balances[giver] - amount, taker: balances[taker] + amount}

    def _write(self, changes: dict[str, int], op: Op) -> None:
        for name, balance in changes.items():
            number = f"{self.task.process}:{op.number}.{name}"
            send = Send(self.key(0), labelled(name, number, is_tombstone=False))
            op.actions.append(send)
            self.recorder.write(op)
            self.send(op, send, self.task.topic, 0, key=name, value=str(balance), headers=[(ID, number.encode())])


class Auditor(Worker):
    """Reads the whole bank again and again."""

    def run(self) -> None:
        while not self.stopping.is_set():
            op = self.recorder.begin(Assign((self.key(0),)))
            try:
                polls, balances = read_balances(self.task.servers, self.task.topic)
            except TimeoutError as late:
                self.recorder.end(op, "unknown", str(late))
                continue
            op.actions += [Poll(self.key(0), value, offset) for offset, value in polls]
            op.actions.append(Total(self.key(0), len(balances), sum(balances.values())))
            self.recorder.end(op, "ok")
            self.rest()
        os._exit(0)
