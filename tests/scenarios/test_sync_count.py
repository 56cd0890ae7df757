"""Syncs are counted on the real disk: kill -9 keeps the page cache, and cannot show that one is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tidelog.testing import Broker

RECORDS = 20


def syncs_of(monkeypatch: pytest.MonkeyPatch, data: Path, mode: str) -> int:
    """How many data syncs so many produces, one after the other, cause."""
    count = 0
    fdatasync = os.fdatasync

    def counting(fd: int) -> None:
        nonlocal count
        count += 1
        fdatasync(fd)

    monkeypatch.setattr(os, "fdatasync", counting)
    with Broker({"tidelog.sync.mode": mode}, data=data) as broker:
        topic = broker.create_topic()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": 0})
        producer.produce(topic, b"first")
        assert producer.flush(20) == 0
        before = count
        for _ in range(RECORDS):
            producer.produce(topic, b"x")
            assert producer.flush(20) == 0
        return count - before


@pytest.mark.skipif(not hasattr(os, "fdatasync"), reason="syncs are counted where fdatasync is")
def test_each_acknowledged_produce_is_synced_in_synced_mode_and_none_in_page_cache_mode(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert syncs_of(monkeypatch, tmp_path / "synced", "synced") >= RECORDS
    assert syncs_of(monkeypatch, tmp_path / "page-cache", "page-cache") == 0
