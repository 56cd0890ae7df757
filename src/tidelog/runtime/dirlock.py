"""The exclusive lock on a data directory: flock, else Windows' locking, else a file that names its owner.

flock rather than a POSIX record lock: that one falls when any descriptor of the file is closed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, Final

from tidelog.kernel.errors import DirectoryLockedError, DiskError

_HELD: Final[set[str]] = set()


class DirectoryLock:
    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()


def lock_file(path: str) -> DirectoryLock:
    try:
        try:
            return _lock_by_system(path)
        except _NoLockingError:
            return _lock_by_owner_file(path)
    except OSError as error:
        raise DiskError(f"cannot lock {path}: {error.strerror or error}") from None


def lock_for_reading(path: str) -> DirectoryLock:
    """Hold the lock together with other readers, so that no node starts meanwhile; DirectoryLockedError when one runs,
    ours or Apache's (whose lock is of the other kind, a POSIX record lock). Makes no file: without one there is none
    to hold."""
    owner_path = os.path.abspath(path) + ".owner"
    if os.path.exists(owner_path) and _owner_lives(owner_path):
        raise _locked(path)
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return DirectoryLock(lambda: None)
    except OSError as error:
        raise DiskError(f"cannot open {path}: {error.strerror or error}") from None
    with contextlib.suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise _locked(path) from None
    return DirectoryLock(lambda: os.close(fd))


class _NoLockingError(Exception):
    pass


def _locked(path: str) -> DirectoryLockedError:
    directory = os.path.dirname(path) or "."
    return DirectoryLockedError(
        f"the data directory {directory} is in use by another node: stop that one or choose another directory"
    )


def _lock_by_system(path: str) -> DirectoryLock:
    try_lock = _system_lock()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        try_lock(fd)
    except OSError:
        os.close(fd)
        raise _locked(path) from None
    return DirectoryLock(lambda: os.close(fd))


def _system_lock() -> Callable[[int], Any]:
    with contextlib.suppress(ImportError):
        import fcntl

        return lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        import msvcrt
    except ImportError:
        raise _NoLockingError from None
    locking: Any = msvcrt.locking  # type: ignore[attr-defined,unused-ignore]
    return lambda fd: locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]


def _lock_by_owner_file(path: str) -> DirectoryLock:
    """Without any locking in the system: a file with the owner's process number, taken over when that one is gone."""
    owner_path = os.path.abspath(path) + ".owner"
    for _ in range(2):
        try:
            fd = os.open(owner_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            if _owner_lives(owner_path):
                raise _locked(path) from None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(owner_path)
            continue
        with os.fdopen(fd, "w") as file:
            file.write(str(os.getpid()))
        _HELD.add(owner_path)
        return DirectoryLock(lambda: _release_owner_file(owner_path))
    raise _locked(path)


def _release_owner_file(owner_path: str) -> None:
    _HELD.discard(owner_path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(owner_path)


def _owner_lives(owner_path: str) -> bool:
    try:
        with open(owner_path) as file:
            owner = int(file.read())
    except FileNotFoundError:
        return False
    except ValueError:  # just created, its number not yet written
        return True
    if owner == os.getpid():
        # A container restarts with the same process number: only what this very process holds is held.
        return owner_path in _HELD
    try:
        os.kill(owner, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
