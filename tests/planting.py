"""A bug in a node of its own process, and in the helper process that cleans for it: code that Python runs there before
anything else. For tests that want to see a broken node caught; nothing of it is in what is shipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DROPS_LAST = """
from tidelog.log.cleaning.fates import DROP
from tidelog.log.cleaning.keeping import Keeper

keep = Keeper._keep


def planted(self, part):
    for index in range(part.first, part.end):
        header = part.stretch.header(index)
        if header.base_offset % 2 == 0 and not header.is_control:
            part.fates[index] = DROP
    yield from keep(self, part)


Keeper._keep = planted
"""
"""A cleaner that drops about every second batch: the last record of a key goes, and the older ones of the key with it,
because a later one is known."""


@contextmanager
def planted(directory: Path, code: str) -> Iterator[None]:
    """Every Python process that is started within it has the bug."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sitecustomize.py").write_text(code)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(directory), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
