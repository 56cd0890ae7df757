"""Prints how many seeds were run: a simulation that ran nothing must not look like one that passed."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from tests.sim.test_node import METADATA_SEEDS, SEEDS

    passed = [report.nodeid for report in terminalreporter.getreports("passed")]
    if any("tests/sim/test_node.py" in name for name in passed):
        terminalreporter.write_line(
            f"simulation: {SEEDS} seeds of the log's workload, {METADATA_SEEDS} of the metadata's"
        )
