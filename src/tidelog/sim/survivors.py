"""What a machine finds on its disk when it comes back: all of it after a kill -9, some of it after a power cut."""

from __future__ import annotations

from random import Random
from typing import Final

from tidelog.sim.inodes import Content, Directory, Inode, apply_change

SECTOR: Final = 512


class Survivors:
    """What is left of the nodes after a crash; a node that has two names keeps them."""

    def __init__(self, random: Random, keep_page_cache: bool) -> None:
        self._random = random
        self._keep = keep_page_cache
        self._made: dict[int, Inode | Directory] = {}

    def directory(self, old: Directory) -> Directory:
        new = Directory()
        self._made[id(old)] = new
        if self._keep:
            new.durable = {name: self._node(node) for name, node in old.durable.items()}
            new.changes = [(a, b, self._node(node)) for a, b, node in old.changes]
            new.entries = {name: self._node(node) for name, node in old.entries.items()}
            return new
        entries = dict(old.durable)
        chance = self._random.choice((0.0, 0.5, 1.0))
        for change in old.changes:
            if self._random.random() < chance:
                apply_change(entries, *change)
        new.entries = {name: self._node(node) for name, node in entries.items()}
        new.durable = dict(new.entries)
        return new

    def _node(self, old: Inode | Directory) -> Inode | Directory:
        known = self._made.get(id(old))
        if known is None:
            known = self._made[id(old)] = self.directory(old) if isinstance(old, Directory) else self._inode(old)
        return known

    def _inode(self, old: Inode) -> Inode:
        new = Inode()
        new.modified_ms = old.modified_ms
        if self._keep:
            new.content, new.durable = old.content.copy(), old.durable.copy()
            new.changes, new.durable_changes = old.changes, old.durable_changes
            return new
        content = old.content if old.changes == old.durable_changes else self._torn(old)
        new.content, new.durable = content.copy(), content.copy()
        return new

    def _torn(self, inode: Inode) -> Content:
        """Each sector that was not synced is the new one or what was there before, zeros beyond the old end; the length
        is one that the file had or grew through."""
        before = inode.durable.read(0, inode.durable.size)
        after = inode.content.read(0, inode.content.size)
        low, high = sorted((len(before), len(after)))
        size = self._random.choice((low, high, self._random.randint(low, high)))
        chance = self._random.choice((0.0, 0.5, 1.0))
        sectors = []
        for start in range(0, size, SECTOR):
            end = min(start + SECTOR, size)
            is_new = self._random.random() < chance and start < len(after)
            source = after if is_new else before
            sectors.append(source[start:end].ljust(end - start, b"\0"))
        return Content([b"".join(sectors)])
