"""The assignors that the coordinator itself runs (KIP-848), by name. Knows nothing of groups, epochs or records.

An assignor is a function of the members and the topics, and of nothing else: the same input gives the same answer on
every node, whatever the order of its dictionaries and the seed of its hashes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.coordinator.group.assignors.model import Assignment, Assignor, Member, Topic
from tidelog.coordinator.group.assignors.range import range_assignor
from tidelog.coordinator.group.assignors.uniform import uniform_assignor

ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform_assignor, "range": range_assignor}
"""The first is the one for groups whose members name none."""

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "Member", "Topic"]
