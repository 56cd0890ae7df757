"""wrong-total: at every moment all accounts of a bank together hold what they held in the beginning."""

from __future__ import annotations

from tests.chaos.checker.facts import Facts
from tests.chaos.checker.report import Report
from tests.chaos.history import Total


def check(facts: Facts, report: Report) -> None:
    banks = {bank.topic: bank for bank in facts.history.meta.banks}
    for op in facts.history.ops:
        for action in op.actions:
            if not isinstance(action, Total):
                continue
            bank = banks[action.key.rpartition("/")[0]]
            # None at all: it was not opened yet.
            if (action.accounts, action.total) not in ((bank.accounts, bank.total), (0, 0)):
                wanted = f"it has {bank.accounts} with {bank.total}"
                text = f"{action.accounts} accounts with {action.total} in {action.key}, {wanted}"
                report.error("wrong-total", text, op)
