"""Writes src/tidelog/metadata/config/kafka.tsv: facts about Apache Kafka's configs (names, types, defaults, validators,
update modes, synonyms; no texts), asked of the published jars by ConfigFacts.java.

    python -m tools.extract_configs             write the file
    python -m tools.extract_configs --check     exit with 1 when the committed file differs
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.apache import apache_libs, why_not

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/tidelog/metadata/config/kafka.tsv"
HEAD = """\
# Facts about the configs of Apache Kafka 4.3.1, written by tools/extract_configs.py: do not edit by hand.
# scope, name, type, default (=value, null or required), validator, importance, flags, update mode, synonyms
"""


def run_java(mode: str, stdin: str = "") -> str:
    flags = ["-Dfile.encoding=UTF-8", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = ["java", *flags, "-cp", f"{apache_libs()}/*", str(ROOT / "tools/ConfigFacts.java"), mode]
    return subprocess.run(command, input=stdin, capture_output=True, check=True, encoding="utf-8").stdout


def facts() -> str:
    return HEAD + run_java("facts")


def judge(questions: Iterable[tuple[str, str, str]]) -> list[str | None]:
    """For each (scope, name, value): the value as Kafka prints it after parsing, or None where Kafka refuses it."""
    answers = run_java("judge", "".join("\t".join(question) + "\n" for question in questions)).split("\n")[:-1]
    return [answer[3:] if answer.startswith("ok\t") else None for answer in answers]


def main() -> int:
    if (reason := why_not()) is not None:
        print(f"extract_configs: {reason}")
        return 2
    text = facts()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    same = TARGET.read_text(encoding="utf-8") == text
    print("extract_configs: kafka.tsv is", "current" if same else "not what the jars say; run without --check")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
