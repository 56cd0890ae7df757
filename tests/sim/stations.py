"""Where the producers of the simulated transactions run: writers, and copiers that read, write and commit their
position within one transaction."""

from __future__ import annotations

import asyncio
from random import Random

from tests.sim.ledger import Ledger, Transaction
from tests.sim.peer import Peer
from tests.sim.sharing import SESSION_MS, IsOut, Share
from tests.sim.transactors import TIMEOUT_MS, Over, Transactor, Version
from tidelog.client.metadata import TopicPartition
from tidelog.testing.simulation import SimulatedWorld

WORK, OUT, IN = "work", "out", "in"
PARTITIONS = 2
INPUT = 10
"""Records of the input: the copiers know them by their offsets."""
GROUP = "copiers"
SOURCE = TopicPartition(IN, 0)


class Station:
    """One place where producers of one transactional id run, a life after the other."""

    versions: tuple[Version, ...] = (1, 2)

    def __init__(self, world: SimulatedWorld, ledger: Ledger, name: str, transactional_id: str) -> None:
        self.world = world
        self.ledger = ledger
        self.name = name
        self.random = Random(world.random.getrandbits(64))
        self.is_ending = False
        self._transactional_id = transactional_id

    async def run(self) -> None:
        number = 0
        while not self.is_over():
            number += 1
            peer = Peer(self.world, f"{self.name}-{number}", timeout_s=0.7)
            await peer.find_coordinator(self._transactional_id, transactional=True)
            version = self.random.choice(self.versions)
            life = self.world.loop.next_number()
            producer = Transactor(self.ledger, peer, self.random, self._transactional_id, life, version)
            try:
                await producer.start()
                await self.live(producer)
            except Over:
                if self.random.random() < 0.5:
                    peer.hang_up()
                else:
                    peer.die(silent=self.random.random() < 0.5)
            await asyncio.sleep(self.random.uniform(0.0, 0.3))

    def is_over(self) -> bool:
        return self.is_ending

    async def live(self, producer: Transactor) -> None:
        raise NotImplementedError

    async def sleep(self) -> None:
        """Now and then beyond the time-out of a transaction."""
        if not self.is_ending and self.random.random() < 0.06:
            await asyncio.sleep(self.random.uniform(0.3, 2.0) * TIMEOUT_MS / 1000)
        else:
            await asyncio.sleep(self.random.expovariate(20))


class Writer(Station):
    """Writes to several partitions, and commits, aborts or walks away."""

    async def live(self, producer: Transactor) -> None:
        for _ in range(self.random.randint(1, 6)):
            transaction = self.ledger.begins(self.name)
            for number in range(self.random.randint(1, 3)):
                at = TopicPartition(WORK, self.random.randrange(PARTITIONS))
                count = self.random.randint(1, 3)
                await producer.send(
                    transaction, at, [b"%s/%d/%d" % (transaction.name.encode(), number, part) for part in range(count)]
                )
                await self.sleep()
            match self.random.random():
                case chance if chance < 0.75:
                    await producer.end(transaction, commit=True)
                case chance if chance < 0.9:
                    await producer.end(transaction, commit=False)
                case _:
                    raise Over("it has walked away", refused=False)
            await self.sleep()
            if self.is_ending:
                return


class Copier(Station):
    """Reads on from the group's position, writes what it has read, and commits the position with it."""

    is_done = False

    def is_over(self) -> bool:
        return self.is_done

    async def live(self, producer: Transactor) -> None:
        await producer.peer.find_coordinator(GROUP)
        for _ in range(self.random.randint(1, 4) if not self.is_ending else 100):
            position = await producer.fetch_offset(GROUP, SOURCE)
            if position >= INPUT:
                self.is_done = True
                return
            transaction, following = await self.copy(producer, position)
            await self.sleep()
            await producer.commit_offset(GROUP, SOURCE, following)
            await producer.end(transaction, commit=self.random.random() < 0.85)
            await self.sleep()

    async def copy(self, producer: Transactor, position: int) -> tuple[Transaction, int]:
        """A transaction with the next records in it, and where to go on after them."""
        transaction = self.ledger.begins(self.name)
        following = min(position + self.random.randint(1, 3), INPUT)
        for offset in range(position, following):
            at = TopicPartition(OUT, offset % PARTITIONS)
            await producer.send(transaction, at, [b"%s/%d" % (transaction.name.encode(), offset)])
        return transaction, following


class Sharer(Copier):
    """Copies as a member of the group, under a transactional id of its own: nothing but its member epoch keeps one that
    was asleep from committing what another has copied since (KIP-447)."""

    def __init__(
        self, world: SimulatedWorld, ledger: Ledger, name: str, transactional_id: str, topic_id: bytes
    ) -> None:
        super().__init__(world, ledger, name, transactional_id)
        self._topic_id = topic_id

    async def live(self, producer: Transactor) -> None:
        await producer.peer.find_coordinator(GROUP)
        share = Share(producer.peer, self.random, GROUP, SOURCE, self._topic_id)
        for _ in range(self.random.randint(1, 6) if not self.is_ending else 100):
            position = await self._position(producer, share)
            if position >= INPUT:
                self.is_done = True
                return
            transaction, following = await self.copy(producer, position)
            if not self.is_ending and self.random.random() < 0.25:
                await asyncio.sleep(self.random.uniform(0.3, 2.5) * SESSION_MS / 1000)
            try:
                await producer.commit_offset(GROUP, SOURCE, following, share)
            except Over:
                if self.random.random() < 0.5:
                    await producer.end(transaction, commit=False)
                raise
            await producer.end(transaction, commit=self.random.random() < 0.85)
            await self.sleep()

    async def _position(self, producer: Transactor, share: Share) -> int:
        """Where to go on, once it is its turn; the end is seen by those who wait, too."""
        while True:
            try:
                has_source = await share.beat()
            except IsOut as out:
                raise Over(str(out), refused=False) from out
            position = await producer.stable_offset(GROUP, SOURCE)
            if position is not None and (has_source or position >= INPUT):
                return position
            await asyncio.sleep(self.random.uniform(0.1, 0.3))
