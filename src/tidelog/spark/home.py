"""Where Spark's own programs find Spark: a home of links to the installed one, without the zip of PySpark's sources.

Spark puts `python/lib/pyspark.zip` of its home before all else on the path of each Python process it starts. Nothing
can be cached beside a zip, so each compiles PySpark anew: 1.3 s of CPU instead of 0.4 s (PySpark 4.3.0). A streaming
query's planner, which has 10 s to connect back, then comes too late on a busy machine. Without the zip they import
the installed PySpark, the one that the driver itself runs on.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

_ZIPPED: Final = "python"


def provide_home(environment: MutableMapping[str, str] = os.environ) -> str:
    """Set SPARK_HOME, unless somebody has: theirs may be another Spark than the one that pip installed."""
    named = environment.get("SPARK_HOME")
    if named:
        return named
    home = Path(tempfile.mkdtemp(prefix="tidelog-spark-"))
    link_home(home)
    environment["SPARK_HOME"] = str(home)
    atexit.register(_remove, home, os.getpid())
    return str(home)


def link_home(home: Path) -> None:
    import pyspark

    installed = Path(pyspark.__file__).resolve().parent
    for entry in installed.iterdir():
        if entry.is_dir() and entry.name != _ZIPPED:
            (home / entry.name).symlink_to(entry)


def _remove(home: Path, owner: int) -> None:
    # A forked child ends too, and its parent still wants the links.
    if os.getpid() == owner:
        shutil.rmtree(home, ignore_errors=True)
