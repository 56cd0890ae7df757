from __future__ import annotations

import subprocess
import sys

import pytest

from tidelog.coordinator.chores import finish
from tidelog.coordinator.group.patterns import PATTERN_LENGTH_MAX, InvalidPattern, compile_pattern

NAMES = ("orders", "orders-eu", "orders.us", "payments", "a" * 249)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-eu", "orders.us"}),
        (r"orders[.-]\w+", {"orders-eu", "orders.us"}),
        ("rder", set()),
        ("orders|payments", {"orders", "payments"}),
        ("(?i)ORDERS", {"orders"}),
        (r"\Qorders.us\E", {"orders.us"}),
        (r"\p{Lu}+", set()),
        ("ō", set()),
        ("", set()),
    ],
)
def test_a_pattern_means_the_names_that_it_describes_whole(pattern: str, names: set[str]) -> None:
    assert finish(compile_pattern(pattern).matching(NAMES)) == names


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[a",
        "*",
        r"(a)\1",
        "(?=a)",
        "(?!a)",
        "a{1001}",
        "((a{1000}){1000})",
        r"\pL{1000}",
        "(.*){1000}",
        "(" * 100_000 + ")" * 100_000,
        "x" * (PATTERN_LENGTH_MAX + 1),
        "\ud800",
    ],
)
def test_what_re2_does_not_know_or_what_is_too_large_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(InvalidPattern) as refused:
        compile_pattern(pattern)
    assert str(refused.value)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "((((a*)*)*)*)*b", "(a|aa)+c", "(a|a?)+d", ".*.*.*.*.*.*.*.*e", "(a?){249}a{249}"]
)
def test_patterns_that_hold_others_for_years_end_at_once(pattern: str) -> None:
    """The time limit of the test is the assertion: a backtracking matcher needs 2 ** 249 steps for these."""
    finish(compile_pattern(pattern).matching(NAMES))


_FIRST_USE = """
import sys
from tidelog.coordinator.group.patterns import compile_pattern
assert "re2" not in sys.modules
compile_pattern("a")
assert "re2" in sys.modules
"""


def test_the_library_is_loaded_at_the_first_pattern() -> None:
    subprocess.run([sys.executable, "-c", _FIRST_USE], check=True)
