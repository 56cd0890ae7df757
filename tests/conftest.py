"""How tests are spread over xdist's workers: a module that shares a node or an Apache broker stays on one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SPREAD = (HERE / "sim", HERE / "unit" / "protocol")
"""Nothing is shared there, and there is a lot to do: test by test, wherever a worker is free."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        alone = not any(item.path.is_relative_to(folder) for folder in SPREAD)
        if alone and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(HERE))))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many seeds were run: a simulation that ran nothing must not look like one that passed."""
    counts: dict[str, int] = {}
    for report in terminalreporter.getreports("passed"):
        for name, count in report.user_properties:
            if name.startswith("seeds of "):
                counts[name] = counts.get(name, 0) + int(str(count))
    for name, count in sorted(counts.items()):
        terminalreporter.write_line(f"simulation: {count} passed, {name}")
    if counts:
        terminalreporter.write_line(f"simulation: {sum(counts.values())} passed in all")
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "fuzz_requests":
                terminalreporter.write_line(f"fuzz: {value} requests thrown at a node")
