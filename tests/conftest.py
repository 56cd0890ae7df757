"""What a run of the tests tells at its end (how many seeds and how many requests of the fuzzer it was), which tests
share a worker, and that no property test is timed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

# A first example loads or compiles what the others only use. The rest is as it comes, in CI and elsewhere.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As --dist loadfile, but the tests of Spark are like one file: a session takes half a GiB and 10 s to start."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/spark" if nodeid.startswith("tests/spark/") else super()._split_scope(nodeid)

    return Scheduling(config, log)


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
