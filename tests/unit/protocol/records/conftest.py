"""Every test of the decoder runs on both twins."""

from __future__ import annotations

import pytest

from tidelog.protocol.records import TwinName


@pytest.fixture(scope="session", params=["pure", "native"])
def twin(request: pytest.FixtureRequest) -> TwinName:
    name: TwinName = request.param
    return name
