from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.metadata.config import ConfigError
from tidelog.node.config import NodeConfig, load
from tidelog.node.environment import config_name
from tidelog.node.listeners import Listener


def error_of(*overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(None, {}, overrides)
    return str(raised.value)


def test_nothing_set_is_one_node_on_loopback() -> None:
    config = load(None, {})
    assert (config.node_id, config.roles, config.log_dirs) == (1, ("broker", "controller"), ("tidelog-data",))
    assert config.listeners == (Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_listeners is None
    assert (config.warnings, config.cluster_id, config.static) == ([], None, {})


def test_the_environment_beats_the_file_and_an_override_beats_both(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nnode.id=7\nlog.dirs=/a,/b\n")
    environ = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_NODE_ID": "8", "CLUSTER_ID": "abc", "PATH": "/bin"}
    config = load(str(path), environ, ["num.partitions=4"])
    assert (config.get_int("num.partitions"), config.node_id, config.log_dirs) == (4, 8, ("/a", "/b"))
    assert config.cluster_id == "abc"
    assert config.static == {"num.partitions": "4", "node.id": "8", "broker.id": "8", "log.dirs": "/a,/b"}
    assert config.is_set("num.partitions")
    assert not config.is_set("default.replication.factor")


def test_typed_access() -> None:
    config = NodeConfig({"log.flush.interval.ms": "5"})
    assert config.get_int("message.max.bytes") == 1048588
    assert config.get_bool("auto.create.topics.enable") is True
    assert config.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.get_str("compression.type") == "producer"
    assert config.get_list("log.cleanup.policy") == ("delete",)
    assert config.get_optional_int("log.flush.interval.ms") == 5
    assert config.get_optional_int("log.roll.ms") is None
    assert config.get("log.dirs") is None
    with pytest.raises(AssertionError):
        config.get_int("compression.type")


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "offsets.topic.replication.factor"),
        ("KAFKA_LISTENER_NAME_MY__NAME_SSL_KEY_PASSWORD", "listener.name.my_name.ssl.key.password"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
    ],
)
def test_variables_are_named_as_in_kafkas_image(variable: str, name: str) -> None:
    assert config_name(variable) == name


def test_every_bad_value_is_reported_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# mine\nnum.partitions=0\nlog.dirs=/a\n")
    with pytest.raises(ConfigError) as raised:
        load(str(path), {"KAFKA_COMPRESSION_TYPE": "rar"}, ["auto.create.topics.enable=maybe", "node.id=1"])
    assert str(raised.value).splitlines() == [
        f"{path}, line 2: num.partitions=0: expected a whole number of at least 1",
        "environment variable KAFKA_COMPRESSION_TYPE: compression.type=rar: expected gzip, lz4, producer, snappy,"
        " uncompressed or zstd",
        "--override: auto.create.topics.enable=maybe: expected true or false",
    ]


def test_a_bad_value_that_is_overridden_does_not_matter() -> None:
    assert load(None, {"KAFKA_NUM_PARTITIONS": "x"}, ["num.partitions=2"]).get_int("num.partitions") == 2


@pytest.mark.parametrize(
    ("setting", "warning"),
    [
        ("num.partition=3", "num.partition is ignored: it is not a known config; did you mean num.partitions?"),
        ("NUM.PARTITIONS=3", "NUM.PARTITIONS is ignored: it is not a known config; did you mean num.partitions?"),
        ("log_dirs=/a", "log_dirs is ignored: it is not a known config; did you mean log.dirs?"),
        (
            "tidelog.http.listen=x",
            "tidelog.http.listen is ignored: it is not a known config; did you mean tidelog.http.listener?",
        ),
        ("favourite.colour=blue", "favourite.colour is ignored: it is not a known config"),
        (
            "retention.ms=5",
            "retention.ms is ignored: it is a config of topics, not of the broker; its default for all topics is"
            " log.retention.ms",
        ),
        (
            "zookeeper.connect=localhost:2181",
            "zookeeper.connect is ignored: it was removed in Kafka 4.0 and has no effect",
        ),
        ("num.io.threads=9", "num.io.threads is known but has no effect yet"),
        (
            "listener.name.plaintext.connections.max.idle.ms=9",
            "listener.name.plaintext.connections.max.idle.ms is known but has no effect yet",
        ),
        (
            "leader.replication.throttled.rate=5",
            "leader.replication.throttled.rate is ignored: it can only be set while the broker runs",
        ),
        ("rsm.config.a=b", "rsm.config.a is ignored: it is a setting for a plug-in, and there are none"),
    ],
)
def test_a_warning_says_what_is_wrong(setting: str, warning: str) -> None:
    assert load(None, {}, [setting]).warnings == [f"--override: {warning}"]


@pytest.mark.parametrize("setting", ["num.io.threads=8", "num.partitions=9", "log.cleanup.policy=delete"])
def test_a_default_or_a_config_that_works_is_no_warning(setting: str) -> None:
    assert load(None, {}, [setting]).warnings == []


def test_variables_for_a_jvm_are_ignored_with_a_note() -> None:
    config = load(None, {"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_OPTS": "-Da=b"})
    assert config.static == {}
    assert config.warnings == [
        "environment variable KAFKA_HEAP_OPTS is ignored: it is for a JVM",
        "environment variable KAFKA_OPTS is ignored: it is for a JVM",
    ]


def test_errors_before_any_value_is_looked_at(tmp_path: Path) -> None:
    assert error_of("num.partitions") == (
        "--override num.partitions: expected KEY=VALUE, such as --override num.partitions=3"
    )
    missing = str(tmp_path / "missing")
    with pytest.raises(ConfigError) as raised:
        load(missing, {})
    assert str(raised.value) == f"{missing}: cannot read the settings: No such file or directory"
    path = tmp_path / "server.properties"
    path.write_text("a=\\u1")
    with pytest.raises(ConfigError) as raised:
        load(str(path), {})
    assert str(raised.value) == f"{path}, line 1: \\u needs four hexadecimal digits after it"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["node.id=1", "broker.id=2"], "node.id=1 and broker.id=2: they are two names of one thing"),
        (
            ["queued.max.request.bytes=1000"],
            "queued.max.request.bytes=1000: expected at least socket.request.max.bytes, which is 104857600: such a"
            " request would never find room",
        ),
        (
            ["max.connections.per.ip=0"],
            "max.connections.per.ip=0 lets in only those that max.connections.per.ip.overrides names",
        ),
        (
            ["max.connections.per.ip.overrides=10.0.0.1:5,somebody"],
            "max.connections.per.ip.overrides=10.0.0.1:5,somebody: expected address:number pairs, not somebody",
        ),
        (
            ["group.min.session.timeout.ms=9", "group.max.session.timeout.ms=8"],
            "group.min.session.timeout.ms=9: expected at most group.max.session.timeout.ms, which is 8",
        ),
        (
            ["offsets.topic.segment.bytes=1000"],
            "offsets.topic.segment.bytes=1000: the topic could not be created with segment.bytes=1000: expected a whole"
            " number of at least 1048576",
        ),
        (
            ["listeners=127.0.0.1:9092"],
            "listeners=127.0.0.1:9092: expected NAME://host:port, such as PLAINTEXT://127.0.0.1:9092",
        ),
        (
            ["listeners=PLAINTEXT://h:70000"],
            "listeners=PLAINTEXT://h:70000: expected NAME://host:port, such as PLAINTEXT://127.0.0.1:9092",
        ),
        (["listeners=SSL://h:9092"], "listeners=SSL://h:9092: SSL is not supported yet, only PLAINTEXT is"),
        (
            ["listeners=INSIDE://h:9092"],
            "listeners=INSIDE://h:9092: listener.security.protocol.map has no entry for INSIDE",
        ),
        (
            ["listeners=PLAINTEXT://h:1,PLAINTEXT://i:2"],
            "listeners=PLAINTEXT://h:1,PLAINTEXT://i:2: the name PLAINTEXT is used twice",
        ),
        (
            ["listeners=PLAINTEXT://h:1,CONTROLLER://:1"],
            "listeners: PLAINTEXT and CONTROLLER both want port 1",
        ),
        (
            ["listeners=CONTROLLER://:1", "listener.security.protocol.map=A:PLAINTEXT"],
            "listeners=CONTROLLER://:1: listener.security.protocol.map has no entry for CONTROLLER",
        ),
        (
            ["listener.security.protocol.map=A:TLS"],
            "listener.security.protocol.map=A:TLS: expected NAME:PROTOCOL pairs with the protocol PLAINTEXT, SSL,"
            " SASL_PLAINTEXT or SASL_SSL, not A:TLS",
        ),
        (
            ["advertised.listeners=CONTROLLER://h:1"],
            "advertised.listeners: CONTROLLER is not one of the listeners: PLAINTEXT",
        ),
        (
            ["advertised.listeners=PLAINTEXT://0.0.0.0:1"],
            "advertised.listeners: clients cannot connect to 0.0.0.0; name an address that they can reach, or leave"
            " advertised.listeners at auto",
        ),
    ],
)
def test_settings_that_do_not_go_together(settings: list[str], sentence: str) -> None:
    assert error_of(*settings) == sentence


def test_listeners_names_and_addresses() -> None:
    config = load(
        None,
        {},
        [
            "listeners=PLAINTEXT://:9092,inside://[::1]:0,CONTROLLER://127.0.0.1:9093",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT, INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "advertised.listeners=PLAINTEXT://example.org:19092",
        ],
    )
    assert config.listeners == (
        Listener("PLAINTEXT", "PLAINTEXT", "", 9092),
        Listener("INSIDE", "PLAINTEXT", "::1", 0),
        Listener("CONTROLLER", "PLAINTEXT", "127.0.0.1", 9093),
    )
    assert [listener.is_wildcard for listener in config.listeners] == [True, False, False]
    assert config.advertised_listeners == (Listener("PLAINTEXT", "PLAINTEXT", "example.org", 19092),)


def test_broker_id_is_the_old_name_of_node_id() -> None:
    assert load(None, {}, ["broker.id=5"]).node_id == 5


def test_an_internal_topic_gets_no_more_replicas_than_there_are_brokers_unless_somebody_says_so() -> None:
    name = "offsets.topic.replication.factor"
    assert [load(None, {}).capped(name, brokers) for brokers in (1, 2, 3, 9)] == [1, 2, 3, 3]
    assert load(None, {}, [f"{name}=3"]).capped(name, 1) == 3
