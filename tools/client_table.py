"""The table of client x feature in README.md and docs/clients.md, made by the tests in tests/clients.

python -m tools.client_table           run the tests and write the table; refused when one fails or is skipped
python -m tools.client_table --check   compare what is written with the tests there are, without running them
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.clients.matrix import CLIENTS, COLUMNS, COMMANDS, SECTIONS, TOOLS, Cell
from tools import apache

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = ROOT / "README.md"
PAGE: Final = ROOT / "docs" / "clients.md"
BEGIN: Final = "<!-- clients:begin -->"
END: Final = "<!-- clients:end -->"
YES: Final = "✓"
NO_SUCH_CALL: Final = "–"

_PAGE: Final = """# Clients

Made by `python -m tools.client_table` from the tests in `tests/clients`: each tick is a scenario that ran with that
client against a node in a process of its own. The clients are as their makers publish them; the Java ones come from
Apache Kafka's jars.

{table}

{legend}

## What a client has no call for

{lacks}

## Apache's command line tools

These ran, under the names of their scripts, against the node: {commands}.

## The judges judged

`TIDELOG_CLIENTS_AGAINST=apache ./dev test -n 0 tests/clients` runs the same scenarios against Apache Kafka {version}.
"""
_LEGEND: Final = (
    f"{YES} tested against a running node, {NO_SUCH_CALL} the client has no such call, empty: not asked of the tools."
)


def outcomes(*options: str) -> dict[Cell, set[str]]:
    """Run pytest on the client tests and read what they say of each cell."""
    with tempfile.TemporaryDirectory() as directory:
        results = Path(directory, "results.json")
        tests = ROOT / "tests" / "clients"
        # The test of the committed table would fail for the very reason that the table is being made.
        command = [sys.executable, "-m", "pytest", "-q", str(tests), f"--ignore={tests / 'test_table.py'}", *options]
        environment = {**os.environ, "TIDELOG_CLIENT_RESULTS": str(results)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if not results.exists() or done.returncode != 0:
            raise SystemExit(
                f"{done.stdout}{done.stderr}client_table: the client tests do not pass; nothing is written"
            )
        rows = json.loads(results.read_text())["cells"]
    return {Cell(*cell): set(found) for *cell, found in rows}


def versions() -> dict[str, str]:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    return {column: pins.get(column, apache.VERSION) for column in COLUMNS}


def table(cells: Sequence[Cell]) -> str:
    known = set(cells)
    stray = {cell.section for cell in known} - set(SECTIONS)
    assert not stray, f"sections without a place in the table: {stray}"
    named = versions()
    lines = [
        "| | " + " | ".join(f"{column} {named[column]}" for column in COLUMNS) + " |",
        "|---|" + ":-:|" * len(COLUMNS),
    ]
    for section in SECTIONS:
        lines.append(f"| **{section}** |" + " |" * len(COLUMNS))
        # The order of the scenarios, not of the tools that share their rows.
        own = sorted((cell for cell in cells if cell.section == section), key=lambda cell: cell.client == TOOLS)
        features = dict.fromkeys(cell.feature for cell in own)
        rows = [(feature, tuple(_mark(known, section, feature, column) for column in COLUMNS)) for feature in features]
        lines += [f"| {label} | {' | '.join(marks)} |" for label, marks in _joined(rows)]
    return "\n".join(lines)


def _mark(known: set[Cell], section: str, feature: str, column: str) -> str:
    if Cell(section, feature, column) in known:
        return YES
    return "" if column == TOOLS else NO_SUCH_CALL


def _joined(rows: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """`acks: 1` and `acks: all` share a row where every client answers both alike."""
    for (kind, marks), alike in itertools.groupby(rows, key=lambda row: (row[0].partition(": ")[0], row[1])):
        labels = [label.partition(": ")[2] for label, _ in alike]
        yield (f"{kind}: {', '.join(labels)}" if labels[0] else kind), marks


def lacks() -> str:
    return "\n".join(
        f"- {client.name}: {feature} ({why})" for client in CLIENTS.values() for feature, why in client.lacks.items()
    )


def page(made: str) -> str:
    commands = ", ".join(f"`{command}`" for command in COMMANDS)
    return _PAGE.format(table=made, legend=_LEGEND, lacks=lacks(), commands=commands, version=apache.VERSION)


def readme(text: str, made: str) -> str:
    block = f"{BEGIN}\n{made}\n\n{_LEGEND} More in [docs/clients.md](docs/clients.md).\n{END}"
    if BEGIN not in text:
        return f"{text.rstrip()}\n\n{block}\n".lstrip()
    before, _, rest = text.partition(BEGIN)
    return before + block + rest.partition(END)[2]


def written() -> Mapping[Path, str]:
    return {path: path.read_text() if path.exists() else "" for path in (README, PAGE)}


def wanted(cells: Iterable[Cell]) -> Mapping[Path, str]:
    made = table(list(cells))
    return {README: readme(written()[README], made), PAGE: page(made)}


def check() -> list[str]:
    """The files that are not in line with the tests."""
    texts = written()
    return [path.name for path, text in wanted(outcomes("--collect-only", "-n", "0")).items() if texts[path] != text]


def write() -> None:
    found = outcomes("-n", "2", "--dist", "loadfile")
    if missing := {cell for cell, results in found.items() if results != {"passed"}}:
        raise SystemExit(f"client_table: not passed, so nothing is written: {sorted(missing)}")
    for path, text in wanted(sorted(found, key=list(outcomes("--collect-only", "-n", "0")).index)).items():
        path.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description="The client table of README.md and docs/clients.md.")
    parser.add_argument("--check", action="store_true", help="only compare it with the tests there are")
    if not parser.parse_args().check:
        write()
    elif stale := check():
        print(
            f"{', '.join(stale)}: the client table is not in line with tests/clients; run python -m tools.client_table"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
