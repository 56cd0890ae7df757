"""Errors of the operating system as those of the disk port."""

from __future__ import annotations

import errno
from typing import Final

from tidelog.kernel.errors import DiskError, DiskFullError

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def disk_error(action: str, path: str, error: OSError) -> DiskError:
    kind = DiskFullError if error.errno in FULL else DiskError
    return kind(f"cannot {action} {path}: {error.strerror or error}")
