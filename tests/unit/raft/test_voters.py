"""A metadata log of kraft.version 1, as Apache Kafka's `format --standalone` begins one: the log tells who votes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.unit.raft.test_quorum import DIR, Voter, new_disk, state_on
from tidelog.kernel.errors import TidelogError
from tidelog.protocol.batch import CONTROL, RecordInput, build_batch, iter_headers
from tidelog.protocol.codec import encode
from tidelog.protocol.messages.records_control import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from tidelog.raft.quorum_state import QuorumState, write_quorum_state
from tidelog.raft.snapshots import SnapshotId, list_snapshots, read_snapshot, write_snapshot
from tidelog.raft.voters import NO_VOTERS, Voters
from tidelog.sim.disk import SimDisk
from tidelog.sim.loop import run

VERSION = encode(KRaftVersionRecord(kraft_version=1), 0)


def voters_value(*ids: int, port: int = 9093) -> bytes:
    shape = VotersRecord
    endpoint = shape.Endpoint(name="CONTROLLER", host="localhost", port=port)
    members = [shape.Voter(voter_id=voter, voter_directory_id=b"d" * 16, endpoints=[endpoint]) for voter in ids]
    return encode(shape(voters=members), 0)


def control(base_offset: int, *entries: tuple[int, bytes]) -> bytes:
    records = [RecordInput(kind.to_bytes(4, "big"), value, 5) for kind, value in entries]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=1, attributes=CONTROL))


def apache_disk(ids: Sequence[int] = (1,), *, in_snapshot: bool = True, in_log: bool = True) -> SimDisk:
    """What a first start of Apache leaves: the snapshot of the formatter, then one batch with three records."""
    disk = new_disk()
    disk.make_dirs(DIR)
    if in_snapshot:
        write_snapshot(disk, DIR, SnapshotId(0, 0), [], 3, 4, Voters(VERSION, voters_value(*ids)))
    leader = encode(LeaderChangeMessage(leader_id=1, voters=[LeaderChangeMessage.Voter(voter_id=1)]), 0)
    told = [(5, VERSION), (6, voters_value(*ids, port=1234))] if in_log else []
    data = bytes(build_batch([RecordInput(None, b"first", 5)], base_offset=1 + len(told), leader_epoch=1))
    disk.replace_file(f"{DIR}/{0:020}.log", control(0, (2, leader), *told) + data)
    write_quorum_state(disk, f"{DIR}/quorum-state", QuorumState(1, 1, version=1))
    return disk


def test_the_state_keeps_the_form_without_voters() -> None:
    disk = apache_disk()
    voter = Voter(disk).start()
    assert voter.state == [b"first"]
    assert voter.quorum.epoch == 2
    assert disk.read_file(f"{DIR}/quorum-state") == (
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


@pytest.mark.parametrize("state_lost", [False, True])
def test_a_snapshot_tells_who_votes_with_the_newest_that_the_log_told(state_lost: bool) -> None:
    disk = apache_disk()
    if state_lost:
        disk.remove(f"{DIR}/quorum-state")

    async def scenario() -> None:
        voter = Voter(disk, snapshot_bytes=1).start()
        await voter.append(b"second")
        voter.quorum.close()

    run(scenario())
    (snapshot,) = list_snapshots(disk, DIR)
    expected = Voters(VERSION, voters_value(1, port=1234))
    assert read_snapshot(disk, DIR, snapshot) == ([b"first", b"second"], expected)
    headers = [header for _, header in iter_headers(disk.read_file(f"{DIR}/{snapshot.file_name}") or b"")]
    assert [(header.base_offset, header.record_count, header.is_control) for header in headers] == [
        (0, 3, True),
        (3, 2, False),
        (5, 1, True),
    ]


def test_an_upgrade_that_the_state_does_not_know_of_yet_is_seen_in_the_log() -> None:
    """As `kafka-features upgrade` leaves it: the voters are in the log, the state still names them itself."""
    disk = apache_disk(in_snapshot=False)
    write_quorum_state(disk, f"{DIR}/quorum-state", QuorumState(1, 1, (1,)))

    async def scenario() -> None:
        voter = Voter(disk, snapshot_bytes=1).start()
        await voter.append(b"second")
        voter.quorum.close()

    run(scenario())
    expected = Voters(VERSION, voters_value(1, port=1234))
    assert read_snapshot(disk, DIR, list_snapshots(disk, DIR)[-1])[1] == expected


def test_the_snapshot_alone_tells_when_the_log_has_none() -> None:
    disk = apache_disk(in_log=False)

    async def scenario() -> None:
        voter = Voter(disk, snapshot_bytes=1).start()
        await voter.append(b"second")
        await asyncio.sleep(0)
        voter.quorum.close()

    run(scenario())
    assert read_snapshot(disk, DIR, list_snapshots(disk, DIR)[-1])[1] == Voters(VERSION, voters_value(1))


def test_a_log_of_kraft_version_0_tells_nothing() -> None:
    disk = new_disk()

    async def scenario() -> None:
        voter = Voter(disk, snapshot_bytes=1).start()
        await voter.append(b"one")
        voter.quorum.close()

    run(scenario())
    assert read_snapshot(disk, DIR, list_snapshots(disk, DIR)[-1])[1] == NO_VOTERS
    assert state_on(disk)["data_version"] == 0


@pytest.mark.parametrize("ids", [(1, 2, 3), (2,)])
def test_one_voter_of_several_or_another_one_is_refused_and_nothing_written(ids: tuple[int, ...]) -> None:
    disk = apache_disk(ids)
    before = disk.read_file(f"{DIR}/{0:020}.log"), disk.read_file(f"{DIR}/quorum-state")
    with pytest.raises(TidelogError, match="only the directory of a node that is the only voter can be opened"):
        Voter(disk).start()
    assert (disk.read_file(f"{DIR}/{0:020}.log"), disk.read_file(f"{DIR}/quorum-state")) == before


def test_voters_of_the_older_form_of_the_state_count_too() -> None:
    disk = new_disk()
    Voter(disk).start().quorum.close()
    write_quorum_state(disk, f"{DIR}/quorum-state", QuorumState(2, 5, (1, 2, 3)))
    with pytest.raises(TidelogError, match="a quorum of the voters 1, 2, 3, and this node is 1"):
        Voter(disk).start()
