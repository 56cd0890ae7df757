"""A disk for data that nobody keeps: files as usual, nothing synced. For fixtures, where a sync only costs time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.kernel.ports import File
from tidelog.runtime.disk import OsDisk
from tidelog.runtime.file import OsFile


class EphemeralDisk(OsDisk):
    def replace_files(self, files: Sequence[tuple[str, bytes]]) -> asyncio.Future[None]:
        for path, data in files:
            self.replace_file(path, data)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def _replace_file(self, path: str, data: bytes, durable: bool = True) -> None:
        super()._replace_file(path, data, durable=False)

    def sync_dir(self, path: str) -> None:
        pass

    def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> asyncio.Future[None]:
        self.sync_now(files, directories)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def _sync_pinned(self, pinned: list[tuple[OsFile, int]], directories: Sequence[str]) -> None:
        pass
