"""A Java program behind a pipe, as the witness of what our own code says: a question per line, an answer per line. An
answer that begins with "!" is the exception that it raised."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Refused(Exception):
    """Kafka raised at what it was asked."""


class Witness:
    """A context manager; the program ends with its input."""

    def __init__(self, libs: Path, program: Path) -> None:
        command = ["java", *FLAGS, "-cp", f"{libs}/*", str(program)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the program has ended"
        if answer.startswith("!"):
            raise Refused(answer[1:].rstrip("\n"))
        return answer.rstrip("\n")
