from __future__ import annotations

import pytest

from tests.unit.protocol.oracle import Oracle
from tidelog.protocol.errors import ErrorCode


def test_codes_are_numbers() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.is_retriable
    assert not ErrorCode.TOPIC_AUTHORIZATION_FAILED.is_retriable


@pytest.mark.java
def test_they_are_kafkas(newest_oracle: Oracle) -> None:
    theirs = {tuple(line.split()) for line in newest_oracle.ask("E").split(",")}
    assert theirs == {(str(code.value), code.name, str(code.is_retriable).lower()) for code in ErrorCode}
