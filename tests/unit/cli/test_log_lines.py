"""Log lines of `tidelog serve`: what a peer calls itself writes no line of its own."""

from __future__ import annotations

import logging
import sys

from tidelog.cli.serve import OneLine


def formatted(message: str, *values: object, failed: bool = False) -> str:
    failure = None
    if failed:
        try:
            raise ValueError("a bug")
        except ValueError:
            failure = sys.exc_info()
    record = logging.LogRecord("tidelog.x", logging.INFO, "f", 1, message, values, failure)
    return OneLine("%(levelname)s %(name)s: %(message)s").format(record)


def test_control_characters_are_shown() -> None:
    assert formatted("group %s joins", "a\nERROR forged\x1b[31m\x85\u2028é") == (
        "INFO tidelog.x: group a\\x0aERROR forged\\x1b[31m\\x85\\x2028é joins"
    )


def test_a_traceback_keeps_its_lines() -> None:
    lines = formatted("it failed", failed=True).splitlines()
    assert lines[0] == "INFO tidelog.x: it failed"
    assert lines[1].startswith("Traceback") and lines[-1] == "ValueError: a bug"
