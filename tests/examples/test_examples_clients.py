"""The examples that need no Spark: the broker is asked for what they tell, and a story that is not true fails."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.examples.playing import everything, held, play, play_changed
from tidelog.testing import Broker

TRANSFERS, ACCOUNTS, OPENING = 20, 4, 100


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(process=True) as broker:
        yield broker


def committed(bootstrap: str, group: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return sum(partition.offset for partition in answer.topic_partitions if partition.topic == topic)


def booked(bootstrap: str, ledger: str, isolation: str = "read_committed") -> tuple[int, dict[int, list[int]]]:
    """What all accounts have together, and the amounts of each transfer."""
    amounts = defaultdict(list)
    for key, value in everything(bootstrap, ledger, isolation):
        account, transfer, amount = json.loads(value)
        assert account == key.decode()
        amounts[transfer].append(amount)
    return OPENING * ACCOUNTS + sum(map(sum, amounts.values())), amounts


def test_transfers_lose_money_without_transactions_and_none_with_them(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    told = held(play("transfer", servers))

    total, amounts = booked(servers, "ledger-plain")
    assert f"money is gone: {total} instead of 400" in told
    assert total < 400
    assert {transfer for transfer, found in amounts.items() if len(found) != 2} == {7, 14}

    total, amounts = booked(servers, "ledger-exact")
    assert total == 400
    assert sorted(amounts) == list(range(1, TRANSFERS + 1))
    assert all(len(found) == 2 and sum(found) == 0 for found in amounts.values())
    # The deaths were real: what the dead tellers wrote is in the log, and aborted.
    _, amounts = booked(servers, "ledger-exact", "read_uncommitted")
    assert {transfer: len(found) for transfer, found in amounts.items() if len(found) != 2} == {7: 3, 14: 4}
    assert committed(servers, "tellers-of-ledger-exact", "transfers") == TRANSFERS

    again = play("transfer", servers)
    assert again.returncode == 2  # what may be somebody's is not touched
    assert "tidelog topic delete transfers" in again.stdout


def test_transfers_without_transactions_do_not_pass_for_exact_ones(broker: Broker) -> None:
    change = (
        "work = transfer.work; transfer.work = lambda story, ledger, way, should: work(story, ledger, 'plain', should)"
    )
    done = play_changed("transfer", change, broker.bootstrap_servers)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DOES NOT HOLD: every account has what it should have" in done.stdout
    assert "DOES NOT HOLD: every transfer has one debit and one credit" in done.stdout
    assert done.stdout.endswith("\nNot all of it held.\n")


def test_six_services_read_every_order_of_the_shop(broker: Broker) -> None:
    told = held(play("food_delivery", broker.bootstrap_servers))
    for service in ("kitchen", "courier", "billing", "notifications", "analytics", "loyalty"):
        assert f"holds: {service}: each of 70 orders once" in told
        assert committed(broker.bootstrap_servers, service, "orders") == 70
    orders = [json.loads(value) for _, value in everything(broker.bootstrap_servers, "orders", "read_committed")]
    assert f"{sum(order['price'] for order in orders)} is billed for 70 orders" in told
    assert Counter(order["id"] for order in orders) == Counter(range(1, 71))
    down = told.split("Billing is down")[1].split("Billing is back")[0]
    rows = [line.split() for line in down.splitlines() if line.strip().startswith("billing  orders")]
    assert sum(int(row[5]) for row in rows) == 40  # the lag that the command shows


def test_a_shop_that_begins_at_the_end_is_seen(broker: Broker) -> None:
    """The sixth service would miss all that was before it."""
    change = (
        "consumer = food_delivery.Consumer; food_delivery.Consumer = lambda settings: consumer("
        "settings | ({'auto.offset.reset': 'latest'} if settings['group.id'] == 'loyalty' else {}));"
        "wait = food_delivery.Service.wait_for;"
        "food_delivery.Service.wait_for = lambda self, orders: wait(self, 0 if self.name == 'loyalty' else orders)"
    )
    done = play_changed("food_delivery", change, broker.bootstrap_servers)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DOES NOT HOLD: loyalty: each of 70 orders once" in done.stdout
    assert "holds: courier: each of 70 orders once" in done.stdout


def test_a_broker_that_is_not_there_is_told() -> None:
    done = play("food_delivery", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("no broker answers on 127.0.0.1:1: ")
    assert len(done.stderr.splitlines()) == 1
