"""Topics on either broker, made and removed over a plain socket: no client library has to be there."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tidelog.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tidelog.testing.wire import Wire

_CREATE, _DELETE, _LIST_OFFSETS = 7, 5, 7


def create(address: str, name: str, partitions: int = 1, *, patience_s: float = 60) -> bytes:
    """The id of the new topic, as soon as every partition of it has a leader."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    with Wire(address, client_id="bench", timeout_s=max(120, patience_s)) as wire:
        answer = wire.call(CreateTopicsRequest(topics=[topic]), _CREATE, CreateTopicsResponse).topics[0]
        if answer.error_code != 0:
            raise RuntimeError(f"{name} was not created: {answer.error_message or answer.error_code}")
        deadline = time.monotonic() + patience_s
        while not _is_led(wire, name, partitions):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name}: no leader after {patience_s:.0f} s")
            # Not so often that a broker which makes thousands of them has nothing else to do.
            time.sleep(max(0.02, partitions / 10_000))
    return answer.topic_id


def _is_led(wire: Wire, name: str, partitions: int) -> bool:
    """Asked of the log itself: Apache's metadata names a leader a moment before that leader takes records."""
    ends = [ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    topic = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=ends)
    answer = wire.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), _LIST_OFFSETS, ListOffsetsResponse)
    return all(part.error_code == 0 for part in answer.topics[0].partitions)


def delete(address: str, name: str, data: Path) -> None:
    """Gone from the disk too, so that the next run pays for its own bytes only; then everything else is synced."""
    with Wire(address, client_id="bench", timeout_s=120) as wire:
        answer = wire.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), _DELETE, DeleteTopicsResponse)
        if answer.responses[0].error_code != 0:
            raise RuntimeError(f"{name} was not deleted: {answer.responses[0].error_code}")
    deadline = time.monotonic() + 30
    while any(folder.name.startswith(f"{name}-") for folder in data.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.sync()


def disk_bytes(data: Path, name: str) -> int:
    """What a topic takes on the disk, by the kernel's count of blocks: indexes are made long and kept sparse."""
    total = 0
    for folder in data.glob(f"{name}-*"):
        for file in folder.iterdir():
            try:
                found = file.stat()
            except FileNotFoundError:
                continue
            total += min(found.st_size, found.st_blocks * 512) if file.suffix != ".log" else found.st_size
    return total
