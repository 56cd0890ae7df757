"""Names in the file system, and files that are read whole: all that needs no descriptor of the pool."""

from __future__ import annotations

import os
import shutil
from typing import Final

from tidelog.runtime.disk_error import disk_error

_READ_CHUNK: Final = 64 * 1024


class ReadNames:
    """What changes nothing."""

    def read_file(self, path: str) -> bytes | None:
        try:
            fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk_error("read", path, error) from None
        try:
            parts = []
            while part := os.read(fd, _READ_CHUNK):
                parts.append(part)
            return b"".join(parts)
        except OSError as error:
            raise disk_error("read", path, error) from None
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise disk_error("list", path, error) from None


class OsNames(ReadNames):
    def make_dirs(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise disk_error("create the directory", path, error) from None

    def rename(self, old: str, new: str) -> None:
        try:
            os.replace(old, new)
        except OSError as error:
            raise disk_error(f"rename to {new}", old, error) from None

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise disk_error("remove", path, error) from None

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise disk_error("remove", path, error) from None

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise disk_error("look at", path, error) from None

    def space(self, path: str) -> tuple[int, int]:
        try:
            usage = shutil.disk_usage(path)
            return usage.total, usage.free
        except OSError as error:
            raise disk_error("look at", path, error) from None
