"""Kafka's client configs: what has an effect, what is let pass, what is refused with its name."""

from __future__ import annotations

import pytest

from tidelog.spark.client_config import ConfigError, parse_config


def test_configs_reach_the_client() -> None:
    parsed = parse_config(
        {
            "bootstrap.servers": "a:1,b:2",
            "client.id": "me",
            "request.timeout.ms": "500",
            "max.partition.fetch.bytes": "77",
            "Fetch.Max.Wait.Ms": "9",
            "isolation.level": "read_uncommitted",
            "max.poll.records": "5",  # tunes Java only
        }
    )
    assert parsed.bootstrap == "a:1,b:2"
    assert (parsed.options.client_id, parsed.options.request_timeout_s) == ("me", 0.5)
    assert (parsed.limits.partition_max_bytes, parsed.limits.max_wait_ms) == (77, 9)
    assert parsed.isolation == "read_uncommitted"
    assert parse_config({"bootstrap.servers": "a:1"}).isolation is None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("bootstrap.servers", " ", r"kafka\.bootstrap\.servers is missing"),
        ("bootstrap.servers", "a:b", "is not an address"),
        ("request.timeout.ms", "soon", r"kafka\.request\.timeout\.ms=soon: expected a whole number from 100 to"),
        ("fetch.min.bytes", "0", "from 1 to"),
        ("isolation.level", "serializable", "expected read_committed or read_uncommitted"),
        ("security.protocol", "TLS", r"kafka\.security\.protocol=TLS: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN", r"kafka\.sasl\.mechanism has no effect with kafka\.security\.protocol=PLAINTEXT"),
        ("sasl.kerberos.service.name", "kafka", r"kafka\.sasl\.kerberos\.service\.name is not supported\. Those"),
        ("auto.offset.reset", "earliest", "startingOffsets"),
        ("fetch.max.byte", "1", r"did you mean kafka\.fetch\.max\.bytes\?"),
        ("nonsense", "1", r"Those with an effect: kafka\.bootstrap\.servers"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_config({"bootstrap.servers": "a:1", name: value}, prefix="kafka.")
