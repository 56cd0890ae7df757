from __future__ import annotations

import pytest

from tidelog.coordinator.partitioning import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("é", 233), ("😀", 1772899)],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


@pytest.mark.parametrize(("group", "expected"), [("g-classic", 18), ("g-new", 18), ("polygenelubricants", 0)])
def test_the_partition_is_kafkas(group: str, expected: int) -> None:
    assert partition_for(group, 50) == expected
