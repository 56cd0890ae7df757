"""Who may change a table now: a lock that falls with its process, in the table's directory.

Commits of one table are made one at a time (`commit`), and so is what takes files out of it (`maintenance`: merging,
replacing, removing orphans). Both are held by drivers only. Iceberg would refuse one of two commits by itself, Delta
most times; the lock saves the retry, and keeps a removal of orphans from running into a commit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

from tidelog.spark.lake.errors import LakeError

BOOKS: Final = "_tidelog"
"""The directory for locks and Parquet's commits. The underscore hides it from readers by glob."""
WAIT_S_MAX: Final = 1800
"""A merge of a large table holds the maintenance lock for minutes; a commit takes well under a second."""
_POLL_S: Final = 0.02


@contextmanager
def held(root: str, what: Literal["commit", "maintenance"]) -> Iterator[None]:
    """Waits for its turn. Two threads of a process exclude each other as well: each opens the file anew."""
    import fcntl

    directory = os.path.join(root, BOOKS)
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"{what}.lock")
    with open(path, "ab") as file:
        for _ in range(int(WAIT_S_MAX / _POLL_S)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                threading.Event().wait(_POLL_S)
        else:
            raise LakeError(f"{path} was held by another process for {WAIT_S_MAX} s")
        yield
