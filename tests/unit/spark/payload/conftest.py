"""Payloads need the extra `spark`, not a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.spark.payload.http_registry import HttpRegistry, serve

for _needed in ("pyarrow", "fastavro", "jsonschema_rs", "google.protobuf"):
    pytest.importorskip(_needed)


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    with serve() as registry:
        yield registry
