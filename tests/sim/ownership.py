"""Who owns which partition of a group, and what it has committed there, as the members were told: the rules of groups.

A member owns what it was given from the moment it hears of it until it gives it up, is told that it is out, or has not
been heard of for a session's time, counted from when it sent the last heartbeat that was answered: the coordinator
counts from later, so it never gives the partition away earlier. No partition is owned by two at once.

Every commit carries a token. What is committed is what the newest owner was told to be committed, or a commit of its
own whose answer it did not get. A commit that is sent when another member owns the partition is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

NOTHING = ""


@dataclass
class _Tenure:
    """The time from one member's grant to the next member's."""

    member: str
    since_s: float
    before: set[str]
    """What may be committed from before it; one token from when the member has fetched or committed."""
    sent: set[str] = field(default_factory=set)


class Ownership:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._until: dict[int, dict[str, float]] = {}
        self._tenures: dict[int, _Tenure] = {}
        self._epochs: dict[str, int] = {}
        self.offsets: dict[str, int] = {NOTHING: 0}
        """Of every token that was ever sent."""
        self.grants = 0
        self.commits = 0
        self.refusals = 0

    # partitions

    def hears(self, member: str, partitions: Collection[int], until_s: float) -> None:
        """The member was told, or told again, that it owns these and nothing else."""
        now_s = self._now_s()
        for partition in [partition for partition in self._until if partition not in partitions]:
            self._until[partition].pop(member, None)
        if until_s <= now_s:
            return
        for partition in sorted(partitions):
            holders = self._until.setdefault(partition, {})
            for other, other_until_s in holders.items():
                assert other == member or other_until_s <= now_s, (
                    f"partition {partition} is owned by two: {other} until {other_until_s:.3f} s, "
                    f"and {member} at {now_s:.3f} s"
                )
            holders[member] = until_s
            self._grant(partition, member, now_s)

    def _grant(self, partition: int, member: str, now_s: float) -> None:
        tenure = self._tenures.get(partition)
        if tenure is None or tenure.member != member:
            before = {NOTHING} if tenure is None else tenure.before | tenure.sent
            self._tenures[partition] = _Tenure(member, now_s, before)
            self.grants += 1

    def gives_up(self, member: str) -> None:
        for holders in self._until.values():
            holders.pop(member, None)

    def owned(self, member: str) -> list[int]:
        now_s = self._now_s()
        return [partition for partition, holders in sorted(self._until.items()) if holders.get(member, 0) > now_s]

    def epoch(self, member: str, epoch: int, *, joined: bool) -> None:
        known = self._epochs.get(member, -1)
        assert joined or epoch >= known, f"the epoch of {member} went back from {known} to {epoch}"
        self._epochs[member] = epoch

    # offsets

    def sends(self, member: str, partition: int, token: str, offset: int) -> float:
        """When: to be told again with the answer."""
        self.offsets[token] = offset
        tenure = self._tenures.get(partition)
        if tenure is not None and tenure.member == member:
            tenure.sent.add(token)
        return self._now_s()

    def accepted(self, member: str, partition: int, token: str, sent_s: float) -> None:
        self.commits += 1
        tenure = self._tenures[partition]
        if tenure.member == member:
            tenure.before = {token}
            return
        assert sent_s < tenure.since_s, (
            f"partition {partition}: a commit of {member}, sent at {sent_s:.3f} s, was accepted, "
            f"and {tenure.member} has owned it since {tenure.since_s:.3f} s"
        )

    def fetched(self, member: str, partition: int, token: str) -> int:
        """The offset of what is committed; the member is the one that owns the partition now."""
        tenure = self._tenures[partition]
        if tenure.member == member:
            self._check(tenure, partition, token)
            tenure.before = {token}
        return self.offsets[token]

    def check_at_end(self, partition: int, token: str) -> None:
        tenure = self._tenures.get(partition)
        if tenure is None:
            assert token == NOTHING, f"partition {partition}: {token} is committed, and nobody ever owned it"
        else:
            self._check(tenure, partition, token)

    @staticmethod
    def _check(tenure: _Tenure, partition: int, token: str) -> None:
        possible = tenure.before | tenure.sent
        assert token in possible, (
            f"partition {partition}, which {tenure.member} has owned: {token or 'nothing'} is committed, "
            f"expected one of {sorted(possible)}"
        )
