"""Account transfers, with and without transactions.

A teller reads transfers from a topic and writes two bookings for each, a debit and a credit. It is killed (kill -9)
twice at a bad moment, and each time a new one goes on. Without transactions, money is lost. With them, none is.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from story import Story, read, tell

ACCOUNTS = ("ann", "ben", "cleo", "dan")
OPENING = 100  # what each account has at first
TOTAL = OPENING * len(ACCOUNTS)
TRANSFERS = 20
DEATHS = ("after the debit of transfer 7", "before the commit of transfer 14")  # the first teller's, the second's


class Booking(NamedTuple):
    account: str
    transfer: int
    amount: int


def bookings_of(transfer: dict[str, Any]) -> tuple[Booking, Booking]:
    number, amount = transfer["id"], transfer["amount"]
    return Booking(transfer["from"], number, -amount), Booking(transfer["to"], number, amount)


# The teller: a process of its own, so that it can be killed.


def teller(bootstrap: str, ledger: str, way: str, death: str) -> None:
    """Plain: a booking is there as soon as it is written, and the offset is committed after both. Transactional: debit,
    credit and offset are one, and readers of committed records see all of it or nothing."""
    transactional = way == "transactional"
    # log_level: a new teller has to wait while the dead one's transaction is aborted, and would say so.
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 3}
    producer = Producer(settings | ({"transactional.id": "teller-1"} if transactional else {}))
    if transactional:
        producer.init_transactions()  # aborts what a dead teller of this name has left open
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"tellers-of-{ledger}",
            "group.instance.id": "teller-1",  # a new teller takes the dead one's place; else it waits for its session
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe(["transfers"])
    for message in iter(lambda: consumer.poll(60), None):
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            break  # all transfers are done
        transfer = json.loads(message.value())
        debit, credit = bookings_of(transfer)
        done = [TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
        if transactional:
            producer.begin_transaction()
        book(producer, ledger, debit)
        if death == f"after the debit of transfer {transfer['id']}":
            die(producer)
        book(producer, ledger, credit)
        if transactional:
            producer.send_offsets_to_transaction(done, consumer.consumer_group_metadata())
        if death == f"before the commit of transfer {transfer['id']}":
            die(producer)
        if transactional:
            producer.commit_transaction()
        else:
            producer.flush()
            consumer.commit(offsets=done, asynchronous=False)
    consumer.close()


def book(producer: Producer, ledger: str, booking: Booking) -> None:
    producer.produce(ledger, key=booking.account, value=json.dumps(booking))


def die(producer: Producer) -> None:
    producer.flush()  # what was written is in the log
    os.kill(os.getpid(), signal.SIGKILL)


# The story: the same transfers and the same deaths, in one way and in the other.


def play(story: Story) -> None:
    chance = random.Random(30)
    transfers = []
    for number in range(1, TRANSFERS + 1):
        payer, payee = chance.sample(ACCOUNTS, 2)
        transfers.append({"id": number, "from": payer, "to": payee, "amount": chance.randrange(5, 30, 5)})
    story.topic("transfers")
    producer = Producer({"bootstrap.servers": story.bootstrap, "acks": "all"})
    for transfer in transfers:
        producer.produce("transfers", json.dumps(transfer))
    producer.flush()
    should = balances([booking for transfer in transfers for booking in bookings_of(transfer)])
    story.act(f"{len(ACCOUNTS)} accounts with {OPENING} each: {TOTAL} in the bank. {TRANSFERS} transfers wait.")

    story.act("Without transactions")
    has, odd = work(story, "ledger-plain", "plain", should)
    story.expect(sum(has.values()) != TOTAL, f"money is gone: {sum(has.values())} instead of {TOTAL}")
    story.expect(odd == {7: 3, 14: 4}, "transfer 7 has two debits and one credit, transfer 14 was done twice")

    story.act("With transactions")
    has, odd = work(story, "ledger-exact", "transactional", should)
    story.expect(has == should, f"every account has what it should have: {sum(has.values())} in all")
    story.expect(not odd, "every transfer has one debit and one credit")


def work(story: Story, ledger: str, way: str, should: dict[str, int]) -> tuple[dict[str, int], dict[int, int]]:
    """Tellers until all is done. Gives what the accounts have then, and the transfers without exactly two bookings."""
    story.topic(ledger, partitions=3)
    for death in (*DEATHS, "of old age"):
        command = [sys.executable, __file__, "--teller", story.bootstrap, ledger, way, death]
        code = subprocess.run(command, check=False).returncode
        if death not in DEATHS:
            assert code == 0, f"a teller ended with {code}"
            story.say("a third teller does the rest")
            break
        assert code == -signal.SIGKILL, f"a teller was to be killed {death} and ended with {code}"
        committed = sum(balances(bookings(story, ledger, "read_committed")).values())
        written = sum(balances(bookings(story, ledger, "read_uncommitted")).values())
        story.say(f"a teller is killed {death}: readers of committed records see {committed}, all others {written}")
        if way == "transactional":
            story.expect(committed == TOTAL, "readers of committed records see no half transfer")
    read_back = bookings(story, ledger, "read_committed")
    has = balances(read_back)
    story.table(["ACCOUNT", "SHOULD HAVE", "HAS"], [(account, should[account], has[account]) for account in ACCOUNTS])
    counts = Counter(booking.transfer for booking in read_back)
    return has, {number: counts[number] for number in range(1, TRANSFERS + 1) if counts[number] != 2}


def bookings(story: Story, ledger: str, isolation: str) -> list[Booking]:
    return [Booking(*json.loads(message.value())) for message in read(story.bootstrap, ledger, isolation)]


def balances(bookings: list[Booking]) -> dict[str, int]:
    has = dict.fromkeys(ACCOUNTS, OPENING)
    for booking in bookings:
        has[booking.account] += booking.amount
    return has


if __name__ == "__main__":
    if sys.argv[1:2] == ["--teller"]:
        teller(*sys.argv[2:])
    else:
        tell(play, __doc__)
