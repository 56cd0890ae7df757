"""What an Iceberg table was: which snapshots may go, and which files the others still need."""

from __future__ import annotations

import os
from typing import Any

from tidelog.spark.lake.files import local_path


def expire_before(table: Any, since_ms: int) -> None:
    """Snapshots that were replaced before then. The one that was the table then stays: it may be being read."""
    older = sorted(
        (found for found in table.snapshots() if found.timestamp_ms <= since_ms), key=lambda it: it.timestamp_ms
    )
    named = {reference.snapshot_id for reference in table.refs().values()}
    if expired := [found.snapshot_id for found in older[:-1] if found.snapshot_id not in named]:
        table.maintenance.expire_snapshots().by_ids(expired).commit()


def data_names(table: Any) -> set[str]:
    """Of every data file that a snapshot knows."""
    return {os.path.basename(path) for path in table.inspect.all_files().column("file_path").to_pylist()}


def metadata_paths(table: Any) -> list[str]:
    """The manifests of every snapshot and their lists."""
    paths = set()
    for snapshot in table.snapshots():
        paths.add(local_path(snapshot.manifest_list))
        paths.update(local_path(manifest.manifest_path) for manifest in snapshot.manifests(table.io))
    return sorted(paths)


def remove_manifests(table: Any, since_ms: int) -> None:
    """Those that no snapshot needs: of expired ones, and of commits that lost a race or died."""
    needed = set(metadata_paths(table))
    directory = os.path.dirname(local_path(table.metadata_location))
    for entry in os.scandir(directory):
        old = entry.stat().st_mtime_ns // 1_000_000 <= since_ms
        if old and entry.name.endswith(".avro") and os.path.abspath(entry.path) not in needed:
            os.unlink(entry.path)
