"""Checking the directory of the metadata log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.raft.test_quorum import DIR, Voter, new_disk
from tidelog.log.verify.report import Finding, Report
from tidelog.protocol.batch import iter_headers
from tidelog.protocol.messages.records_metadata import TopicRecord
from tidelog.protocol.records_framing import encode_metadata_record
from tidelog.raft.snapshots import list_snapshots
from tidelog.raft.verify import check_metadata_log
from tidelog.sim.disk import SimDisk
from tidelog.sim.loop import run


def record(number: int) -> bytes:
    return encode_metadata_record(TopicRecord(name=f"topic-{number}", topic_id=bytes([number] * 16)), 0)


def used(snapshot_bytes: int = 1 << 30, segment_bytes: int = 1 << 30) -> SimDisk:
    disk = new_disk()

    async def scenario() -> None:
        voter = Voter(disk, snapshot_bytes=snapshot_bytes, segment_bytes=segment_bytes).start()
        for number in range(12):
            await voter.append(record(number))
        voter.quorum.close()

    run(scenario())
    return disk


def findings(disk: SimDisk, severity: str = "damage", *, clean: bool = True) -> list[Finding]:
    found: list[Finding] = []
    check_metadata_log(disk, DIR, Report(found.append), clean)
    return [finding for finding in found if finding.severity == severity]


def change(disk: SimDisk, path: str, how: Callable[[bytearray], object]) -> None:
    data = bytearray(disk.read_file(path) or b"")
    how(data)
    disk.replace_file(path, bytes(data))


def flip(at: int) -> Callable[[bytearray], object]:
    return lambda data: data.__setitem__(at, data[at] ^ 1)


LOG = f"{DIR}/00000000000000000000.log"
STATE = f"{DIR}/quorum-state"


@pytest.mark.parametrize("snapshot_bytes", [1 << 30, 400])
def test_a_whole_one(snapshot_bytes: int) -> None:
    disk = used(snapshot_bytes)
    assert bool(list_snapshots(disk, DIR)) == (snapshot_bytes == 400)
    for clean in (True, False):
        assert findings(disk, clean=clean) == findings(disk, "note", clean=clean) == []


def test_only_the_last_batch_can_be_torn() -> None:
    disk = used()
    starts = [position for position, _ in iter_headers(disk.read_file(LOG) or b"")]
    change(disk, LOG, flip(starts[-1] + 65))
    assert findings(disk, clean=False) == []
    assert [finding.position for finding in findings(disk, "note", clean=False)] == [starts[-1]]
    assert [finding.position for finding in findings(disk)] == [starts[-1]]
    change(disk, LOG, flip(starts[4] + 65))
    assert [finding.position for finding in findings(disk, clean=False)] == [starts[4]]


def test_a_record_that_cannot_be_replayed() -> None:
    disk = new_disk()

    async def scenario() -> None:
        voter = Voter(disk).start()
        await voter.append(b"\x01")
        voter.quorum.close()

    run(scenario())
    assert [finding.what for finding in findings(disk)] == ["a metadata record that ends within its frame"]


def test_snapshots() -> None:
    disk = used(400)
    path = f"{DIR}/{list_snapshots(disk, DIR)[-1].file_name}"
    content = disk.read_file(path) or b""
    assert findings(disk) == []
    for how in (flip(70), lambda data: data.__delitem__(slice(-5, None)), flip(15), bytearray.clear):
        change(disk, path, how)
        assert {finding.file for finding in findings(disk)} == {path}
        disk.replace_file(path, content)
    last = [position for position, _ in iter_headers(content)][-1]
    disk.replace_file(path, content[:last])
    assert [finding.what for finding in findings(disk)] == ["is not complete: it has no header or no footer"]
    disk = used(400, 200)
    assert findings(disk) == []
    disk.remove(f"{DIR}/{list_snapshots(disk, DIR)[-1].file_name}")
    assert any("no snapshot holds what was before" in finding.what for finding in findings(disk))


def test_quorum_state() -> None:
    for content in (None, b"", b"{", b'{"leaderId":1,"leaderEpoch":0,"currentVoters":[]}'):
        disk = used()
        disk.remove(STATE)
        if content is not None:
            disk.replace_file(STATE, content)
        assert [finding.file for finding in findings(disk)] == [STATE]


def test_what_is_left_over_is_a_note() -> None:
    disk = used()
    disk.replace_file(f"{DIR}/00000000000000000009-0000000001.checkpoint.part", b"")
    assert findings(disk) == []
    assert len(findings(disk, "note")) == 1
