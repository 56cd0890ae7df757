"""Plays a scenario: lines that start with ">" are commands, the others are what came of them.

    > a join                     JoinGroup (two steps from version 4 on, as clients do them one by one)
    > a sync a=A b=B             SyncGroup; the leader gives assignments
    > wait 3000                  milliseconds of virtual time
    > hold, > commit             stop the high watermark, let it go on
    > show                       the group as it is in memory

Clients are single letters. A member id is shown as the letter and a number, in the order in which they were given out.
"""

from __future__ import annotations

import re
from typing import Any

from tests.unit.coordinator.fakes import World
from tidelog.coordinator.group.coordinator import Client
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP = "g"


def check(scenario: str, **config: int) -> None:
    """The commands of the scenario lead to exactly the outcome that stands between them."""
    expected = [line.strip() for line in scenario.strip().splitlines() if line.strip()]
    player = Player(**config)
    for line in expected:
        if line.startswith(">"):
            player.play(line[1:].strip())
    assert "\n".join(player.lines) == "\n".join(expected)


class Player:
    def __init__(self, **config: int) -> None:
        self.world = World(**config)
        self.lines: list[str] = []
        self.members: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.waiting: dict[str, Any] = {}

    def play(self, command: str) -> None:
        self.lines.append(f"> {command}")
        words = command.split()
        if len(words[0]) == 1:
            name, verb, *rest = words
            getattr(self, f"do_{verb}")(name, *_arguments(rest))
        else:
            getattr(self, f"do_{words[0]}")(*words[1:])
        self.world.settle()

    def say(self, text: str) -> None:
        self.lines.append(re.sub(r"[\w]*-[0-9a-f]{8}-[0-9a-f-]{27}", lambda found: self.short(found[0]), text))

    def short(self, member_id: str) -> str:
        if member_id not in self.names:
            head = member_id[:-37]
            number = sum(name.rstrip("0123456789") == head for name in self.names.values()) + 1
            self.names[member_id] = f"{head}{number}"
        return self.names[member_id]

    def long(self, short: str) -> str:
        return next((member_id for member_id, name in self.names.items() if name == short), short)

    # members

    def do_join(self, name: str, flags: list[str], options: dict[str, str]) -> None:
        version = int(options.get("v", 9))
        protocols = [entry.split(":") for entry in options.get("protocols", "range:m").split(",") if entry]
        request = JoinGroupRequest(
            group_id=options.get("group", GROUP),
            member_id=self.long(options["id"]) if "id" in options else self.members.get(name, ""),
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=entry[0], metadata=entry[1].encode())
                for entry in protocols
            ],
        )

        def answered(response: JoinGroupResponse) -> None:
            if response.error_code:
                if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    self.members[name] = response.member_id
                known = f", id {response.member_id}" if response.member_id else ""
                self.say(f"{name}: join {ErrorCode(response.error_code).name}{known}")
                return
            self.members[name], self.generations[name] = response.member_id, response.generation_id
            others = " ".join(
                f"{member.member_id}{'/' + member.group_instance_id if member.group_instance_id else ''}"
                f"={member.metadata.decode()}"
                for member in response.members
            )
            text = f"{name}: joined generation {response.generation_id} as {response.member_id}"
            text += f", {response.protocol_type}/{response.protocol_name}, leader {response.leader}"
            text += f" [{others}]" if others else ""
            text += ", skip assignment" if response.skip_assignment else ""
            self.say(text)

        client = Client(name, "/127.0.0.1")
        self.waiting[name] = self.world.groups.join(request, version, client, answered)

    def do_sync(self, name: str, flags: list[str], options: dict[str, str]) -> None:
        special = {
            key: options.pop(key) for key in ("generation", "instance", "type", "protocol", "id") if key in options
        }
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=self.long(special["id"]) if "id" in special else self.members.get(name, ""),
            generation_id=int(special.get("generation", self.generations.get(name, 0))),
            group_instance_id=special.get("instance"),
            protocol_type=special.get("type", "consumer"),
            protocol_name=special.get("protocol", "range"),
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=self.members.get(member, member), assignment=value.encode()
                )
                for member, value in options.items()
            ],
        )

        def answered(response: SyncGroupResponse) -> None:
            error = ErrorCode(response.error_code)
            if error is ErrorCode.NONE:
                text = f"{name}: synced {response.assignment.decode() or 'nothing'}"
                self.say(f"{text} ({response.protocol_type}/{response.protocol_name})")
            else:
                self.say(f"{name}: sync {error.name}")

        self.waiting[name] = self.world.groups.sync(request, 5, answered)

    def do_heartbeat(self, name: str, flags: list[str], options: dict[str, str]) -> None:
        request = HeartbeatRequest(
            group_id=options.get("group", GROUP),
            member_id=self.long(options["id"]) if "id" in options else self.members.get(name, ""),
            generation_id=int(options.get("generation", self.generations.get(name, 0))),
            group_instance_id=options.get("instance"),
        )
        self.say(f"{name}: heartbeat {ErrorCode(self.world.groups.heartbeat(request).error_code).name}")

    def do_leave(self, name: str, flags: list[str], options: dict[str, str]) -> None:
        version = int(options.get("v", 5))
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=options.get("id", self.members.get(name, "")), group_instance_id=options.get("instance")
        )
        request = LeaveGroupRequest(
            group_id=options.get("group", GROUP), member_id=identity.member_id, members=[identity]
        )

        def answered(response: LeaveGroupResponse) -> None:
            inner = " ".join(ErrorCode(member.error_code).name for member in response.members)
            self.say(f"{name}: left {ErrorCode(response.error_code).name} [{inner}]")

        self.world.groups.leave(request, version, answered)

    def do_drop(self, name: str, flags: list[str], options: dict[str, str]) -> None:
        """The connection of the last request dies."""
        self.waiting[name].cancel()

    # offsets

    def do_commit(self, *arguments: Any) -> None:
        if not arguments:
            self.world.log.commit()
            return
        name, _, options = arguments
        special = {key: options.pop(key) for key in ("generation", "instance", "v", "id") if key in options}
        topics: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for where, offset in options.items():
            topic, partition = where.rsplit("-", 1)
            topics.setdefault(topic, []).append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=int(partition), committed_offset=int(offset)
                )
            )
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=special.get("id", self.members.get(name, "")),
            generation_id_or_member_epoch=int(special.get("generation", self.generations.get(name, -1))),
            group_instance_id=special.get("instance"),
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

        def answered(response: OffsetCommitResponse) -> None:
            inner = " ".join(
                f"{topic.name}-{partition.partition_index} {ErrorCode(partition.error_code).name}"
                for topic in response.topics
                for partition in topic.partitions
            )
            self.say(f"{name}: committed {inner}")

        self.world.groups.commit_offsets(request, int(special.get("v", 9)), answered)

    def do_fetch(self, name: str, flags: list[str], options: dict[str, str]) -> None:
        def answered(response: OffsetFetchResponse) -> None:
            inner = " ".join(
                f"{topic.name}-{partition.partition_index}={partition.committed_offset}"
                for topic in response.topics
                for partition in topic.partitions
            )
            error = f" {ErrorCode(response.error_code).name}" if response.error_code else ""
            self.say(f"{name}: offsets {inner or 'none'}{error}")

        self.world.groups.fetch_offsets(OffsetFetchRequest(group_id=GROUP, topics=None), 7, answered)

    # the world

    def do_wait(self, ms: str) -> None:
        self.world.advance(int(ms))

    def do_hold(self) -> None:
        self.world.log.holds = True

    def do_fail(self, code: str) -> None:
        self.world.log.failure = ErrorCode[code]

    def do_mend(self) -> None:
        self.world.log.failure = None

    def do_lose(self) -> None:
        """The log learns that another node leads, before the coordinator does."""
        self.world.log.lose()

    def do_restart(self) -> None:
        self.world.restart()

    def do_unload(self) -> None:
        self.world.runtime.unload(0, self.world.epoch)

    def do_delete(self) -> None:
        request = DeleteGroupsRequest(groups_names=[GROUP])
        self.world.groups.delete_groups(
            request, lambda response: self.say(f"deleted: {ErrorCode(response.results[0].error_code).name}")
        )

    def do_show(self) -> None:
        group = self.world.machine.groups.get(GROUP)
        if group is None:
            self.say("no group")
            return
        members = " ".join(f"{member.member_id}={member.assignment.decode()}" for member in group.members.values())
        pending = f", pending {len(group.pending_joins)}" if group.pending_joins else ""
        self.say(f"{group.state.value}, generation {group.generation}, leader {group.leader_id} [{members}]{pending}")

    def do_log(self) -> None:
        """The records that were written, in short."""
        for key, value in self.world.log.records():
            record = self.world.machine.decode(key, value)
            name = type(record).__name__
            if name == "GroupWritten":
                body = record.value  # type: ignore[union-attr]
                inner = " ".join(f"{member.member_id}={member.assignment.decode()}" for member in body.members)
                self.say(
                    f"{name} {body.protocol_type}/{body.protocol} generation {body.generation} {body.leader} [{inner}]"
                )
            elif name == "OffsetCommitted":
                self.say(f"{name} {record.topic}-{record.partition}={record.value.offset}")  # type: ignore[union-attr]
            elif name == "OffsetRemoved":
                self.say(f"{name} {record.topic}-{record.partition}")  # type: ignore[union-attr]
            else:
                self.say(name)


def _arguments(words: list[str]) -> tuple[list[str], dict[str, str]]:
    flags = [word for word in words if "=" not in word]
    return flags, dict(word.split("=", 1) for word in words if "=" in word)
