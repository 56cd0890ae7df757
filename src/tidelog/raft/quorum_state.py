"""The `quorum-state` file: the epoch and the vote, durable before anyone hears of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tidelog.kernel.errors import TidelogError
from tidelog.kernel.ports import Disk
from tidelog.protocol.uuids import ZERO_UUID, uuid_to_text


@dataclass(frozen=True, slots=True)
class QuorumState:
    leader_id: int = -1
    leader_epoch: int = 0
    voters: tuple[int, ...] = ()
    """Empty in version 1."""
    version: int = 0
    """1 with kraft.version 1, where the log tells who votes."""


def read_quorum_state(disk: Disk, path: str) -> QuorumState:
    data = disk.read_file(path)
    return decode_quorum_state(data, path) if data else QuorumState()


def decode_quorum_state(data: bytes, path: str) -> QuorumState:
    try:
        content = json.loads(data)
        voters = tuple(int(voter["voterId"]) for voter in content.get("currentVoters") or ())
        version = int(content.get("data_version", 0))
        return QuorumState(int(content["leaderId"]), int(content["leaderEpoch"]), voters, version)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TidelogError(
            f"{path} cannot be read ({error}); it is safe to remove it on a node that is the only voter"
        ) from None


def write_quorum_state(disk: Disk, path: str, state: QuorumState) -> None:
    leader = {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": -1}
    content: dict[str, Any]
    if state.version == 0:
        voters = [{"voterId": voter} for voter in state.voters]
        content = {"clusterId": "", **leader, "appliedOffset": 0, "currentVoters": voters, "data_version": 0}
    else:
        content = {**leader, "votedDirectoryId": uuid_to_text(ZERO_UUID), "data_version": state.version}
    disk.replace_file(path, json.dumps(content, separators=(",", ":")).encode())
