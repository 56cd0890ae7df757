"""The registry's client: endpoints, references, retries, credentials, and errors without secrets."""

from __future__ import annotations

import base64
import socket

import pytest

from tests.unit.spark.payload.http_registry import HttpRegistry
from tidelog.spark.payload.errors import RegistryError, SchemaError
from tidelog.spark.payload.registry import Registry, Unknown
from tidelog.spark.payload.registry_options import RegistryOptions
from tidelog.spark.payload.schema import Schema

TEXT = '{"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}'


def client(registry: HttpRegistry, **options: str) -> tuple[Registry, list[float]]:
    paused: list[float] = []
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Registry(RegistryOptions.of(registry.url, named), paused.append), paused


def test_by_id_by_version_and_latest(registry: HttpRegistry) -> None:
    first = registry.add("a/b-value", TEXT)
    second = registry.add("a/b-value", '"string"')
    asks, _ = client(registry)
    assert asks.schema(first) == Schema("avro", TEXT, (), first)
    assert asks.version("a/b-value", 1).id == first
    assert asks.version("a/b-value").id == second
    # The subject's slash is part of its name, not of the path.
    assert registry.asked[-1] == "GET /subjects/a%2Fb-value/versions/latest"


def test_what_the_registry_does_not_know_is_unknown(registry: HttpRegistry) -> None:
    registry.add("s", TEXT)
    asks, _ = client(registry)
    with pytest.raises(Unknown, match="40403"):
        asks.schema(99)
    with pytest.raises(Unknown, match="40401"):
        asks.version("other")
    with pytest.raises(Unknown, match="40402"):
        asks.version("s", 5)
    assert len(registry.asked) == 3


def test_another_server_is_not_a_registry_without_the_schema(registry: HttpRegistry) -> None:
    """A 404 of a proxy, or of a wrong path, must not make every record a bad one."""
    asks = Registry(RegistryOptions.of(registry.url + "/elsewhere"))
    with pytest.raises(RegistryError, match="HTTP 404"):
        asks.schema(1)


def test_references_are_fetched_with_theirs(registry: HttpRegistry) -> None:
    inner = registry.add("inner", '{"type": "enum", "name": "E", "symbols": ["A"]}')
    registry.add("middle", TEXT, references=[{"name": "E", "subject": "inner", "version": 1}])
    outer = registry.add("outer", '"A"', references=[{"name": "A", "subject": "middle", "version": 1}])
    asks, _ = client(registry)
    schema = asks.schema(outer)
    assert [named.name for named in schema.every_reference()] == ["E", "A"]
    assert schema.references[0].schema.references[0].schema.id == inner


def test_a_reference_that_is_gone_is_the_registrys_fault(registry: HttpRegistry) -> None:
    outer = registry.add("outer", '"A"', references=[{"name": "A", "subject": "gone", "version": 1}])
    asks, _ = client(registry)
    with pytest.raises(RegistryError, match="reference 'A'"):
        asks.schema(outer)


def test_a_schema_that_refers_to_itself_ends(registry: HttpRegistry) -> None:
    loop = registry.add("loop", TEXT, references=[{"name": "A", "subject": "loop", "version": 1}])
    asks, _ = client(registry)
    with pytest.raises(RegistryError, match="more than 256 references"):
        asks.schema(loop)


def test_look_up_finds_and_register_adds(registry: HttpRegistry) -> None:
    asks, _ = client(registry)
    schema = Schema("json", '{"type": "object"}')
    with pytest.raises(Unknown):
        asks.look_up("s", schema, [])
    assert registry.schemas == {}
    number = asks.register("s", schema, [])
    assert asks.look_up("s", schema, []) == number
    assert registry.schemas[number]["schemaType"] == "JSON"


def test_passing_faults_are_tried_again_with_longer_pauses(registry: HttpRegistry) -> None:
    number = registry.add("s", TEXT)
    registry.faults = [500, "drop", 429]
    asks, paused = client(registry)
    assert asks.schema(number).id == number
    assert paused == [0.1, 0.2, 0.4]


def test_a_registry_that_stays_away_is_named(registry: HttpRegistry) -> None:
    registry.faults = [503] * 3
    asks, paused = client(registry, retries="2")
    with pytest.raises(RegistryError, match=r"/schemas/ids/1 failed 3 times, the last: HTTP 503, a fault"):
        asks.schema(1)
    assert len(paused) == 2


def test_nobody_listening_is_a_registry_error() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        asks = Registry(RegistryOptions.of(url, {"retries": "1"}), lambda _: None)
        with pytest.raises(RegistryError, match="failed 2 times"):
            asks.schema(1)


def test_one_that_does_not_answer_is_left_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asks = Registry(RegistryOptions.of(url, {"retries": "0", "timeout.ms": "50"}))
        with pytest.raises(RegistryError, match="timed out"):
            asks.schema(1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"basic.auth.user.info": "ada:geheim"}, "Basic " + base64.b64encode(b"ada:geheim").decode()),
        ({"bearer.auth.token": "geheim"}, "Bearer geheim"),
    ],
)
def test_credentials_are_sent_and_never_told(registry: HttpRegistry, options: dict[str, str], expected: str) -> None:
    number = registry.add("s", TEXT)
    registry.authorization = expected
    given = RegistryOptions.of(registry.url, options)
    assert Registry(given).schema(number).id == number
    registry.authorization = "another"
    with pytest.raises(RegistryError, match="401") as refused:
        Registry(given).schema(number)
    assert "geheim" not in str(refused.value) + repr(given)


def test_credentials_of_the_url_are_sent_and_never_told(registry: HttpRegistry) -> None:
    number = registry.add("s", TEXT)
    registry.authorization = "Basic " + base64.b64encode(b"ada:ge heim").decode()
    given = RegistryOptions.of(registry.url.replace("//", "//ada:ge%20heim@"))
    assert given.url == registry.url
    assert Registry(given).schema(number).id == number
    registry.faults = [500] * 4
    with pytest.raises(RegistryError) as failed:
        Registry(given, lambda _: None).schema(number)
    assert "heim" not in str(failed.value) + repr(given)


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("ftp://ada:geheim@host", {}, "must be http"),
        ("host:8081", {}, "must be http"),
        ("http://host?x=1", {}, "query"),
        ("http://host", {"basic.auth": "x"}, "'basic.auth' is not known, use one of basic.auth.user.info"),
        ("http://host", {"timeout.ms": "soon"}, "timeout.ms is 'soon', it must be a whole number of at least 1"),
        ("http://host", {"retries": "-1"}, "at least 0"),
        ("http://u:p@host", {"bearer.auth.token": "t"}, "exclude each other"),
        ("https://host", {"ssl.key.location": "k"}, "needs ssl.certificate.location"),
    ],
)
def test_bad_options_are_named(url: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(SchemaError, match=why) as refused:
        RegistryOptions.of(url, options)
    assert "geheim" not in str(refused.value)
