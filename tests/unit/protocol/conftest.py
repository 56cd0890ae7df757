from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.java_witness import Witness
from tests.unit.protocol.java_records import Ask
from tests.unit.protocol.oracle import Oracle
from tools.apache import apache_libs, newest_clients_libs, why_not


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Apache Kafka 4.3.1, whose versions the broker advertises."""
    libs = apache_libs()
    if libs is None:
        pytest.skip(f"no Apache Kafka to compare with: {why_not()}")
    with Oracle(libs) as running:
        yield running


@pytest.fixture(scope="session")
def newest_oracle() -> Iterator[Oracle]:
    """The clients of 4.4.0, for the versions that 4.3.1 lacks."""
    libs = newest_clients_libs()
    if libs is None:
        pytest.skip(f"no Kafka clients to compare with: {why_not()}")
    with Oracle(libs) as running:
        yield running


@pytest.fixture(scope="session")
def ask() -> Iterator[Ask]:
    """Apache Kafka's record batches; java_records.py has the words."""
    libs = apache_libs()
    if libs is None:
        pytest.skip(f"no Apache Kafka to compare with: {why_not()}")
    with Witness(libs, Path(__file__).with_name("Records.java")) as witness:
        yield witness.ask
