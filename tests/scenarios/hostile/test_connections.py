"""Peers that connect, say nothing, say it slowly, ask for everything and take nothing: the node's memory stays within
what docs/limits.md promises, and a healthy client beside them is served."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from tests.scenarios.hostile.node import (
    MIB,
    NodeUnderAttack,
    attack,
    fill,
    serves,
    start_attack,
    still_serves,
    wait_ready,
)
from tidelog.testing.wire import Wire

ANSWER_BYTES = 16 * MIB
REQUEST_BYTES = 100 * MIB
SLACK_BYTES = 40 * MIB
"""Of the interpreter, and for what comes and goes."""


@pytest.fixture(scope="module")
def node() -> Iterator[NodeUnderAttack]:
    config = {
        "tidelog.queued.max.response.bytes": str(ANSWER_BYTES),
        "queued.max.request.bytes": str(REQUEST_BYTES),
        "socket.request.max.bytes": str(REQUEST_BYTES),
    }
    with NodeUnderAttack(config) as node:
        yield node


def test_ten_thousand_idle_connections() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 20_000:
        pytest.skip(f"the hard limit for open files is {hard}: 10,000 connections and the node's files need 20,000")
    with NodeUnderAttack() as node:
        topic = node.create_topic()
        before = node.memory_bytes
        started = [start_attack("idle", node, 2500, source=f"127.0.0.{n}") for n in (2, 3, 4, 5)]
        try:
            for process in started:
                wait_ready(process)
            assert serves(node, topic)
            assert node.metric("kafka_server_socket_server_metrics_connection_count") == 10_000
            print(f"10,000 idle connections: {node.memory_bytes / MIB:.0f} MB, {before / MIB:.0f} MB without them")
            assert node.memory_bytes < 300 * MIB
            with Wire(node.bootstrap_servers) as known, attack("idle", node, 2000) as more:
                assert still_serves(known, topic, first=20), "who is connected already stays so"
                assert more.wait_ended(), "there are no descriptors for so many"
        finally:
            for process in started:
                process.kill()
                process.communicate()


def test_clients_that_never_read(node: NodeUnderAttack) -> None:
    fill(node, big := node.create_topic(), 40)
    topic = node.create_topic()
    before = node.memory_bytes
    with attack("never-read", node, 1000, big):
        most = node.memory_bytes_max_over(1)
        assert serves(node, topic)
        most = max(most, node.memory_bytes_max_over(2))
    assert most - before < 2 * ANSWER_BYTES + SLACK_BYTES


def test_fetches_that_wait_and_are_all_woken_at_once(node: NodeUnderAttack) -> None:
    """Two hundred on each of a hundred connections: twenty thousand answers of megabytes."""
    big, topic = node.create_topic(), node.create_topic()
    before = node.memory_bytes
    with attack("parked", node, 100, big):
        fill(node, big, 3)
        most = node.memory_bytes_max_over(1)
        assert serves(node, topic)
    assert most - before < 2 * ANSWER_BYTES + 100 * MIB + SLACK_BYTES


def test_frames_that_drip(node: NodeUnderAttack) -> None:
    topic = node.create_topic()
    before = node.memory_bytes
    with attack("drip", node, 2000):
        assert serves(node, topic)
        assert node.memory_bytes - before < 2 * REQUEST_BYTES
        assert node.used("request_bytes") <= 2 * REQUEST_BYTES


def test_large_frames_that_never_end(node: NodeUnderAttack) -> None:
    topic = node.create_topic()
    before = node.memory_bytes
    with attack("unfinished", node, 300) as attackers:
        most = node.memory_bytes_max_over(1)
        assert serves(node, topic)
        assert attackers.wait_ended()
        assert node.refused("request_bytes") > 0
    assert most - before < 2 * REQUEST_BYTES + SLACK_BYTES


def test_requests_without_end(node: NodeUnderAttack) -> None:
    topic = node.create_topic()
    before = node.memory_bytes
    with attack("without-end", node, 20):
        most = node.memory_bytes_max_over(1)
        assert serves(node, topic)
    assert most - before < 20 * 2 * MIB + SLACK_BYTES


def test_the_log_stays_short(node: NodeUnderAttack) -> None:
    assert "Traceback" not in node.log
    assert len(node.log.splitlines()) < 300


def test_an_address_with_too_many_connections_is_turned_away_at_run_time_too() -> None:
    with NodeUnderAttack({"max.connections.per.ip": "50"}) as node:
        topic = node.create_topic()
        with attack("idle", node, 200) as attackers:
            assert serves(node, topic)
            assert attackers.ended() == 150
            assert node.metric("tidelog_connections_refused_total") == 150
