"""The driver's part of an epoch: decide, end every transaction, repair what could not be ended.

The decision is one record in the log. Before it nothing of the epoch is visible, and nothing will be; after it all of
the epoch will be visible once, whoever has to finish it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import BrokerError, ClientError, UnsupportedApiError
from tidelog.client.transactional import TRANSACTION_IS_OVER, Transactions
from tidelog.client.transactions import list_transactions
from tidelog.spark.link import Link
from tidelog.spark.sink.journal import Journal
from tidelog.spark.sink.options import SinkOptions
from tidelog.spark.sink.receipts import Decision, Receipt
from tidelog.spark.sink.salvage import rewrite, was_committed

_LOG: Final = logging.getLogger(__name__)
_ENDS_AT_ONCE: Final = 32

Step = Callable[[str], None]
"""Told of each point that a crash may come at; for tests."""


def nothing(step: str) -> None:
    pass


class Committer:
    """For one sink: a query, an application, or a single write."""

    def __init__(self, link: Link, options: SinkOptions, sink: str, step: Step = nothing) -> None:
        self._link = link
        self._options = options
        self._sink = sink
        self._step = step
        self._driver = f"{options.prefix}{sink}.driver"
        self.journal = Journal(link, options.state_topic, self._driver, sink)

    def commit_epoch(self, epoch: int, receipts: Sequence[Receipt], known: Journal | None = None) -> None:
        """Rows become visible once, also when it is called again after a crash, with other receipts. An epoch without
        rows leaves no trace: it may come again as well."""
        receipts = [receipt for receipt in receipts if receipt.spans]
        journal = self.journal
        if known is None:
            journal.load()
        else:
            journal.resume(known)
        last = journal.decision
        if last is not None and journal.completed < last.epoch:
            self._finish(last)
            journal.complete(last.epoch)
        if last is not None and last.epoch >= epoch:
            _LOG.info("epoch %d of %s was written before", epoch, self._sink)
            self.abort(receipts)
            return
        if not receipts:
            return
        self._step("before the decision")
        decision = Decision(epoch, tuple(receipts))
        journal.decide(decision)
        self._step("decided")
        self._finish(decision)
        self._step("all ended")
        journal.complete(epoch)
        self._abort_strays()

    def commit_once(self, receipts: Sequence[Receipt]) -> None:
        """For a write that nobody will repeat under the same name: no decision, as nobody would look for it."""
        self._finish(Decision(0, tuple(receipt for receipt in receipts if receipt.spans)), journaled=False)
        self._abort_strays()

    def abort(self, receipts: Sequence[Receipt]) -> None:
        """Nothing of them will be visible. What cannot be told so now runs out of time."""
        begun = [receipt for receipt in receipts if receipt.spans]
        for result in self._link.ask(lambda cluster: _end(cluster, begun, committed=False)):
            if isinstance(result, BrokerError) and result.code not in TRANSACTION_IS_OVER:
                _LOG.warning("%s", result)
        self._abort_strays()

    def _finish(self, decision: Decision, *, journaled: bool = True) -> None:
        results = self._link.ask(lambda cluster: _end(cluster, decision.receipts, committed=True, step=self._step))
        over = []
        for receipt, result in zip(decision.receipts, results, strict=True):
            if isinstance(result, BrokerError) and result.code in TRANSACTION_IS_OVER:
                over.append(receipt)
            elif isinstance(result, BaseException):
                raise result
        lost = [receipt for receipt in over if not was_committed(self._link, receipt)]
        if lost:
            self._salvage(decision, lost, journaled)

    def _salvage(self, decision: Decision, lost: Sequence[Receipt], journaled: bool) -> None:
        """All in one transaction, with the decision that has nothing left to end: it is done once, or not yet."""
        records = sum(receipt.records for receipt in lost)
        _LOG.warning("%d records of %s were aborted after the decision; they are written again", records, self._sink)
        link, journal = self._link, self.journal
        identity = link.ask(journal.begin)
        rewrite(link, lost, self._driver, identity)
        settled = Decision(decision.epoch, ())
        if journaled:
            link.ask(lambda cluster: journal.add_decision(cluster, identity, settled))
        link.ask(lambda cluster: Transactions(cluster).end(self._driver, identity, committed=True))
        journal.decision = settled
        self._step("copied")

    def _abort_strays(self) -> None:
        """Attempts that were not chosen, and those of a former run: they would hold up readers until they time out."""
        self._link.ask(self._abort_open)

    async def _abort_open(self, cluster: Cluster) -> None:
        try:
            found = await list_transactions(cluster, ["Ongoing"])
        except (UnsupportedApiError, BrokerError) as error:
            _LOG.warning("open transactions of %s cannot be listed, they end by themselves: %s", self._sink, error)
            return
        transactions = Transactions(cluster)
        for one in found:
            if one.transactional_id.startswith(f"{self._options.prefix}{self._sink}.task."):
                await transactions.abort_left_open(one.transactional_id)


async def _end(
    cluster: Cluster, receipts: Sequence[Receipt], *, committed: bool, step: Step = nothing
) -> list[ClientError | None]:
    """A result per transaction."""
    transactions = Transactions(cluster)
    turn = asyncio.Semaphore(_ENDS_AT_ONCE)

    async def end(receipt: Receipt) -> ClientError | None:
        async with turn:
            try:
                await transactions.end(receipt.transactional_id, receipt.identity, committed=committed)
            except ClientError as error:
                return error
            step("one ended")
            return None

    return await asyncio.gather(*(end(receipt) for receipt in receipts))
