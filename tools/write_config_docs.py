"""Writes docs/configuration.md from the table of configs.

python -m tools.write_config_docs             write the page
python -m tools.write_config_docs --check     exit with 1 when the committed page differs
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tidelog.metadata.config import BROKER_CONFIGS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from tidelog.metadata.config import key as key_module
from tidelog.metadata.config.key import ConfigKey
from tidelog.metadata.config.validators import expectation

TARGET = Path(__file__).resolve().parent.parent / "docs/configuration.md"
INTRO = """\
# Configuration

<!-- Written by `python -m tools.write_config_docs`: do not edit by hand. -->

Tidelog takes Apache Kafka's configs under Kafka's names, with Kafka's defaults but for those in
[differences.md](differences.md). A node reads them from three places, and the later one wins:

1. a file in Java's `.properties` syntax: `tidelog serve server.properties`
2. environment variables as in Kafka's image: `KAFKA_LOG_DIRS` is `log.dirs`; `__` is an underscore, `___` a hyphen;
   `CLUSTER_ID` is the id that a new data directory gets
3. `--override num.partitions=3`, as often as needed

A value that is not allowed stops the start and says what is. A name that nobody knows is a warning with the nearest
known one. Numbers have no units.

**Changed**: `at start` only there; `broker` at run time for one broker; `cluster` at run time for one broker or all;
a topic's or group's own configs can always be changed. **Here**: `yes` if this release acts on it; `not yet` if it is
accepted and shown, but changes nothing.
"""
CHANGED = {"read-only": "at start", "per-broker": "broker", "cluster-wide": "cluster"}


def sections() -> Iterator[tuple[str, list[str]]]:
    """The headings of docs.tsv, and the names below each."""
    lines = (Path(key_module.__file__).with_name("docs.tsv")).read_text(encoding="utf-8").splitlines()[1:]
    heading, names = "", list[str]()
    for line in lines:
        if line.startswith("# "):
            if names:
                yield heading, names
            heading, names = line[2:], []
        else:
            names.append(line.partition("\t")[0])
    yield heading, names


def keys(heading: str, names: list[str]) -> list[ConfigKey]:
    if heading == "Configs of one topic":
        return list(TOPIC_CONFIGS.values())
    tables = (BROKER_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS)
    return [next(table[name] for table in tables if name in table) for name in names]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def row(key: ConfigKey) -> str:
    default = "" if key.default is None else f"`{key.default}`" if key.default else "empty"
    changed = CHANGED[key.update_mode] if key.scope == "broker" else "any time"
    here = "yes" if key.honoured else "not yet"
    return (
        "| "
        + " | ".join(cell(part) for part in (f"`{key.name}`", default, expectation(key), changed, here, key.doc))
        + " |"
    )


def page() -> str:
    parts = [INTRO]
    for heading, names in sections():
        parts.append(
            f"## {heading}\n\n| config | default | takes | changed | here | meaning |\n|---|---|---|---|---|---|"
        )
        parts[-1] += "\n" + "\n".join(row(key) for key in keys(heading, names)) + "\n"
    return "\n".join(parts)


def main() -> int:
    text = page()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
    print("write_config_docs: docs/configuration.md is", "current" if same else "old; run without --check")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
