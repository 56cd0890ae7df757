"""How a member is led from what it has to what it shall have (KIP-848). The one place that hands partitions out.

    Stable -> Unrevoked partitions -> Unreleased partitions -> Stable

What a member must lose it loses first: it is asked, and owns the partitions until it has said that it does not. What it
shall get it gets when nobody owns it any more: `is_free` is asked for every partition before it is given, here and
nowhere else. So a partition never has two owners, however late members answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import TypeAlias

from tidelog.coordinator.group.consumer.model import Current, Held, MemberState, Target

Owned: TypeAlias = Mapping[bytes, Set[int]]
"""What a member says it owns."""
IsFree: TypeAlias = Callable[[bytes, int], bool]


def reconcile(current: Current, target_epoch: int, target: Target, owned: Owned | None, is_free: IsFree) -> Current:
    """The next step of a member; the same object when there is none. `owned` is None when the member has not said."""
    match current.state:
        case MemberState.STABLE:
            if current.epoch == target_epoch:
                return current
            epoch = current.epoch
        case MemberState.UNREVOKED_PARTITIONS:
            if owned is None or _overlap(owned, current.revoking):
                return current
            # It has followed what it was told in its epoch, so that is over, wherever the target is by now.
            epoch = current.epoch + 1
        case _:
            epoch = current.epoch
    return _next(current, epoch, target_epoch, target, owned, is_free)


def _next(
    current: Current, epoch: int, target_epoch: int, target: Target, owned: Owned | None, is_free: IsFree
) -> Current:
    kept, revoking = _split(current.assigned, target)
    if revoking and (owned is None or _overlap(owned, revoking)):
        return _moved(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    assigned, all_released = _extend(kept, target, target_epoch, is_free)
    state = MemberState.STABLE if all_released else MemberState.UNRELEASED_PARTITIONS
    return _moved(current, target_epoch, state, assigned, {})


def _split(assigned: Held, target: Target) -> tuple[dict[bytes, dict[int, int]], Held]:
    """What stays with the member, and what it must give up."""
    kept: dict[bytes, dict[int, int]] = {}
    lost: dict[bytes, dict[int, int]] = {}
    nothing: frozenset[int] = frozenset()
    for topic_id, epochs in assigned.items():
        wanted = target.get(topic_id, nothing)
        if stays := {partition: epoch for partition, epoch in epochs.items() if partition in wanted}:
            kept[topic_id] = stays
        if len(stays) < len(epochs):
            lost[topic_id] = {partition: epoch for partition, epoch in epochs.items() if partition not in wanted}
    return kept, lost


def _extend(kept: dict[bytes, dict[int, int]], target: Target, target_epoch: int, is_free: IsFree) -> tuple[Held, bool]:
    """With everything of the target that is free; and whether that is all of it."""
    all_released = True
    for topic_id, wanted in target.items():
        epochs = kept.get(topic_id, {})
        for partition in sorted(wanted - epochs.keys()):
            if is_free(topic_id, partition):
                epochs[partition] = target_epoch
            else:
                all_released = False
        if epochs:
            kept[topic_id] = epochs
    return kept, all_released


def _moved(current: Current, epoch: int, state: MemberState, assigned: Held, revoking: Held) -> Current:
    if (epoch, state, assigned, revoking) == (current.epoch, current.state, current.assigned, current.revoking):
        return current
    # A member that has not heard of this step comes once more with the epoch it had before. Only that one step may
    # have been lost: an older epoch is one that the member itself has left.
    return Current(epoch, current.epoch, state, assigned, revoking)


def _overlap(owned: Owned, held: Held) -> bool:
    return any(not epochs.keys().isdisjoint(owned.get(topic_id, ())) for topic_id, epochs in held.items())


def is_subset(owned: Owned, held: Held) -> bool:
    return all(partitions <= held.get(topic_id, {}).keys() for topic_id, partitions in owned.items())
