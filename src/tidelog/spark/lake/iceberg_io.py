"""How the Iceberg library writes its own files: each is synced, with its name, before the catalog can point to it.

The library leaves them to the page cache, while the catalog's database is synced: after a power cut it would name a
file that is empty, and the table could not be opened any more.
"""

from __future__ import annotations

import io
import os
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tidelog.runtime.durable import sync_dir, sync_file


class SyncedFileIO(PyArrowFileIO):  # type: ignore[misc]
    def new_output(self, location: str) -> PyArrowFile:
        plain = super().new_output(location)
        return _SyncedFile(location, plain._path, plain._filesystem)


class _SyncedFile(PyArrowFile):  # type: ignore[misc]
    def create(self, overwrite: bool = False) -> Any:
        directory = os.path.dirname(self._path)
        if not os.path.isdir(directory):
            os.makedirs(directory, exist_ok=True)
            sync_dir(os.path.dirname(directory))
        return _SyncedStream(self._path, "wb" if overwrite else "xb")


class _SyncedStream(io.BufferedWriter):
    def __init__(self, path: str, mode: str) -> None:
        super().__init__(io.FileIO(path, mode))
        self._path = path

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        sync_file(self._path)
        sync_dir(os.path.dirname(self._path))
