"""The proxy does to single requests what it is asked to, and to no others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.proxy import Proxy
from tidelog.protocol.apis import ApiKey
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.testing import Broker
from tidelog.testing.wire import Wire

GROUPS = ApiKey.LIST_GROUPS


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    with Proxy(broker.bootstrap_servers) as proxy:
        yield proxy


def ask(wire: Wire) -> ListGroupsResponse:
    return wire.call(ListGroupsRequest(), 0, ListGroupsResponse)


def ask_versions(wire: Wire) -> ApiVersionsResponse:
    return wire.call(ApiVersionsRequest(), 0, ApiVersionsResponse)


def test_what_is_not_asked_for_passes(proxy: Proxy) -> None:
    trap = proxy.catch("hold", GROUPS, passes=1)
    with Wire(proxy.address) as wire:
        assert ask_versions(wire).error_code == 0
        assert ask(wire).error_code == 0
    assert not trap.has_come
    assert proxy.requests == 2


def test_a_request_that_is_held_holds_back_all_behind_it_on_its_connection_only(proxy: Proxy) -> None:
    trap = proxy.catch("hold", GROUPS)
    with Wire(proxy.address, timeout_s=0.1) as wire, Wire(proxy.address) as other:
        wire.send(ListGroupsRequest(), 0)
        wire.send(ApiVersionsRequest(), 0)
        trap.wait()
        assert ask(other).error_code == 0
        with pytest.raises(TimeoutError):
            wire.receive(ListGroupsResponse, 0)
        trap.release()
        wire.socket.settimeout(30)
        assert wire.receive(ListGroupsResponse, 0).error_code == 0
        assert wire.receive(ApiVersionsResponse, 0).error_code == 0


def test_a_request_that_is_held_reaches_the_broker_when_its_client_is_gone(proxy: Proxy) -> None:
    trap = proxy.catch("hold", GROUPS)
    with Wire(proxy.address) as wire:
        wire.send(ListGroupsRequest(), 0)
        trap.wait()
    with Wire(proxy.address) as again:
        assert ask(again).error_code == 0
    trap.release()
    assert int.from_bytes(trap.wait_answered()[:4], "big") == 1


def test_the_broker_may_get_a_request_twice(proxy: Proxy) -> None:
    trap = proxy.catch("copy", GROUPS)
    with Wire(proxy.address) as wire:
        first = ask(wire)
    trap.send_again()
    assert trap.wait_answered()[:4] == (1).to_bytes(4, "big")
    assert first.error_code == 0


def test_an_answer_may_be_lost_with_its_connection(proxy: Proxy) -> None:
    trap = proxy.catch("lose-answer", GROUPS)
    with Wire(proxy.address) as wire:
        assert ask_versions(wire).error_code == 0
        with pytest.raises(ConnectionError):
            ask(wire)
    assert trap.wait_answered()
    with Wire(proxy.address) as again:
        assert ask(again).error_code == 0


def test_a_request_may_be_dropped(proxy: Proxy) -> None:
    proxy.catch("drop", GROUPS)
    with Wire(proxy.address) as wire:
        wire.send(ListGroupsRequest(), 0)
        assert ask_versions(wire).error_code == 0, "this answer is the first to come"


def test_cutting(proxy: Proxy) -> None:
    with Wire(proxy.address) as wire:
        assert ask(wire).error_code == 0
        proxy.cut_all()
        with pytest.raises(ConnectionError):
            ask(wire)


def test_every_answer_lost(proxy: Proxy) -> None:
    from tidelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

    proxy.lose_answers = 1.0
    with Wire(proxy.address) as wire:
        assert ask(wire).error_code == 0
        with pytest.raises(ConnectionError):
            wire.call(EndTxnRequest(transactional_id="x"), 1, EndTxnResponse)


def test_without_a_broker_the_connection_is_closed() -> None:
    with Proxy("127.0.0.1:1") as proxy, Wire(proxy.address) as wire, pytest.raises(ConnectionError):
        ask(wire)
