"""One node for the module; wire-level tests speak to it over a plain socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.testing import Broker
from tidelog.testing.wire import Wire


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire
