"""The Python that a session on this machine starts its workers with: this one, and for the processes that Spark waits
for impatiently a start that answers at once (worker_start.py). It starts nothing itself."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tidelog.spark.worker_start import MODULE

# Spark takes the name of a program, without arguments.
_WRAPPER: Final = """#!/bin/sh
# Made by tidelog.spark.worker_python: Python, which answers Spark before it imports what it needs.
if [ "$1 $2" = "-m {module}" ]; then exec {python} -m tidelog.spark.worker_start "$@"; fi
exec {python} "$@"
"""


def worker_python() -> str:
    """A program that lasts as long as this process."""
    home = Path(tempfile.mkdtemp(prefix="tidelog-python-"))
    program = home / "python"
    program.write_text(_WRAPPER.format(python=shlex.quote(sys.executable), module=MODULE))
    program.chmod(0o755)
    atexit.register(_remove, home, os.getpid())
    return str(program)


def _remove(home: Path, owner: int) -> None:
    # A forked child ends too, and its parent still wants the program.
    if os.getpid() == owner:
        shutil.rmtree(home, ignore_errors=True)
