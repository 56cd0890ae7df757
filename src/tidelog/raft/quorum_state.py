"""The `quorum-state` file: the epoch and the vote, durable before anyone hears of them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tidelog.kernel.errors import TidelogError
from tidelog.kernel.ports import Disk


@dataclass(frozen=True, slots=True)
class QuorumState:
    leader_id: int = -1
    leader_epoch: int = 0
    voters: tuple[int, ...] = ()


def read_quorum_state(disk: Disk, path: str) -> QuorumState:
    data = disk.read_file(path)
    return decode_quorum_state(data, path) if data else QuorumState()


def decode_quorum_state(data: bytes, path: str) -> QuorumState:
    try:
        content = json.loads(data)
        voters = tuple(int(voter["voterId"]) for voter in content.get("currentVoters") or ())
        return QuorumState(int(content["leaderId"]), int(content["leaderEpoch"]), voters)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TidelogError(
            f"{path} cannot be read ({error}); it is safe to remove it on a node that is the only voter"
        ) from None


def write_quorum_state(disk: Disk, path: str, state: QuorumState) -> None:
    content = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in state.voters],
        "data_version": 0,
    }
    disk.replace_file(path, json.dumps(content, separators=(",", ":")).encode())
