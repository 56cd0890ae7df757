"""The table and the parser against Apache Kafka's own classes, from its published jars."""

from __future__ import annotations

import pytest

from tidelog.metadata.config import ConfigError, parse, to_text
from tidelog.metadata.config.key import Scope
from tidelog.metadata.config.table import configs_of
from tools import extract_configs
from tools.apache import why_not

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(why_not() is not None, reason=f"Apache Kafka cannot run here: {why_not()}"),
]

SCOPES: tuple[Scope, ...] = ("broker", "topic", "group", "client-metrics")
VALUES = """
 |true|FALSE| True |yes|0|1|-1|-2|2|9|10|17|18|22|23|+5|--5|0x10|1_000|1e3|1.5|.5|5.|0.5f|1d|NaN|nan|Infinity|-Infinity
inf
0x1p-1|1e400|1e-400|1048575|1048576|32767|32768|2147483647|2147483648|-2147483648|-2147483649|9223372036854775807
9223372036854775808|99999999999999999999999999999999999999|10000000|9999999|0.001|0.0009|123456789.125|٣|1GB|1 000
a|A|a,b|a, b|a ,b|a,,b|,|a,|,a|a,a|delete|Delete|compact,delete|delete,delete|delete,,compact|none|required|zstd|ZSTD
broker|broker,controller|classic|classic,foo|CreateTime|createtime|upgrade|UPGRADE|es256|latest|earliest
by_duration:PT1H|by_duration:P1DT2H3M4.5S|by_duration:P|by_duration:PT|by_duration:x|by_duration:|by_duration:-PT1H
1:2|1:2,3:4|*|1:|a:b|1@h:9|1@h:9,2@i:9|1@h|h:9|h:9,i:9|h|h:99999|h:65535|h:65536|1@h:65536|[::1]:9092|1@[::1]:9092|:9092|PLAINTEXT|plaintext
""".replace("\n", "|").split("|")

# Kafka takes these, and then either fails later or throttles nothing.
STRICTER = {
    ("controller.quorum.bootstrap.servers", ":9092"),
    ("follower.replication.throttled.replicas", ","),
    ("leader.replication.throttled.replicas", ","),
}


def our_answer(scope: Scope, name: str, text: str) -> str | None:
    key = configs_of(scope)[name]
    try:
        return to_text(parse(key, text))
    except ConfigError:
        return None


def test_the_committed_facts_are_what_the_jars_say() -> None:
    assert extract_configs.TARGET.read_text(encoding="utf-8") == extract_configs.facts()


def test_every_config_takes_refuses_and_prints_what_kafka_does() -> None:
    questions = [
        ("dynamic" if key.dynamic_only else scope, name, text)
        for scope in SCOPES
        for name, key in configs_of(scope).items()
        # A Java class would have to be loaded to be taken; our own configs are unknown to Kafka.
        if key.type != "class" and not name.startswith("tidelog.")
        for text in VALUES
    ]
    answers = extract_configs.judge(questions)
    assert len(answers) == len(questions)
    wrong = [
        f"{name}={text!r}: Kafka {theirs!r}, we {ours!r}"
        for (scope, name, text), theirs in zip(questions, answers, strict=True)
        if (name, text) not in STRICTER
        and (ours := our_answer("broker" if scope == "dynamic" else scope, name, text)) != theirs  # type: ignore[arg-type]
    ]
    assert wrong == []
