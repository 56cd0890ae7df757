"""Prints how many seeds were run: a simulation that ran nothing must not look like one that passed."""

from __future__ import annotations

import re

import pytest

_SLICE = re.compile(r"tests/sim/test_node\.py::(\w+)\[range\((\d+), (\d+)\)\]")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: dict[str, int] = {}
    for report in terminalreporter.getreports("passed"):
        if match := _SLICE.search(report.nodeid):
            counts[match[1]] = counts.get(match[1], 0) + int(match[3]) - int(match[2])
    for name, count in sorted(counts.items()):
        terminalreporter.write_line(f"simulation: {count} seeds passed of {name}")
