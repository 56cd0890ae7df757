"""Data files that no commit names: left by batches that died before theirs, by tasks that ran twice, by merging."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tidelog.runtime.clock import SystemClock
from tidelog.spark.lake.files import SUFFIX, plain_name
from tidelog.spark.lake.locks import held
from tidelog.spark.lake.store import Store


def remove_orphans(store: Store, older_than_s: float) -> list[str]:
    """Removes them and says which. Kept are: files younger than the bound, committed ones, and files that were the
    table's within the bound, for those who still read what the table was.

    A commit waits until the removal is through, and looks for its files before it names them: a bound that is too short
    for a long batch makes that batch fail and be written again, and loses nothing.
    """
    with held(store.root, "maintenance"):
        since_ms = SystemClock().wall_ms() - int(older_than_s * 1000)
        candidates = [path for directory in store.data_directories() for path in _older(directory, since_ms)]
        with held(store.root, "commit"):
            kept = store.forget_before(since_ms)
            removed = [path for path in candidates if plain_name(os.path.basename(path)) not in kept]
            for path in removed:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        return removed


def _older(directory: str, since_ms: int) -> Iterator[str]:
    for place, directories, names in os.walk(directory):
        # A log's own directories (_delta_log, _tidelog, ...) have no partition's = in their name.
        directories[:] = sorted(name for name in directories if "=" in name or not name.startswith(("_", ".")))
        for name in names:
            path = os.path.join(place, name)
            # Gone meanwhile: got its plain name, or was another's to remove.
            with contextlib.suppress(FileNotFoundError):
                if name.endswith(SUFFIX) and os.stat(path).st_mtime_ns // 1_000_000 <= since_ms:
                    yield path
