"""Files that others have written, made durable: for code beside the loop, which may wait for the disk."""

from __future__ import annotations

import os

from tidelog.runtime.disk_error import disk_error


def sync_file(path: str) -> None:
    _sync(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)


def sync_dir(path: str) -> None:
    if os.name != "nt":  # directories cannot be opened there, and names are durable with the files
        _sync(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))


def _sync(path: str, flags: int) -> None:
    try:
        fd = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise disk_error("sync", path, error) from None


def replace_file(path: str, data: bytes, *, synced: bool = True) -> None:
    """Readers see the old content or the new, whole. Synced, it is there after a power cut too; not so what is written
    every second and is worth nothing then."""
    part = f"{path}.tmp"
    with open(part, "wb") as file:
        file.write(data)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    os.replace(part, path)
    if synced:
        sync_dir(os.path.dirname(path))
