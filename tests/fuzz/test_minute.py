"""A minute of ./dev fuzz. Its seed is fixed, so that a failure is there again; new seeds are for ./dev fuzz."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fuzz.fuzzer import run

SECONDS = 60


@pytest.mark.timeout(300)
def test_a_minute_of_nonsense_leaves_the_node_as_it_was(record_property: Any) -> None:
    done = run(seed=4, seconds=SECONDS)
    record_property("fuzz_requests", done.requests)
    assert done.requests > 2000, "a fuzzer that throws nothing must not look like one that found nothing"
    assert min(done.counts.values()) > 0 and len(done.counts) == 4
    # The first measure is taken when every codec is compiled; what a round adds is given back.
    assert max(done.memory_bytes) < done.memory_bytes[0] + (64 << 20)
