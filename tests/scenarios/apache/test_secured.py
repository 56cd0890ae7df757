"""The client core at a broker of Apache Kafka that wants TLS, logins and a client's certificate."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tidelog.client.cluster import Cluster
from tidelog.client.errors import AuthenticationError, ClientError, UnreachableError
from tidelog.client.options import ClientOptions
from tidelog.client.security_config import parse_security
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.net import OsNet
from tools import apache
from tools.ports import free_port

pytestmark = pytest.mark.java
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Secured:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {name: free_port() for name in ("tls", "mutual", "login")}

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"


def make_certificate(directory: Path, name: str) -> None:
    """NAME.pem with key and certificate, NAME.crt with the certificate that is its own authority."""
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *curve, *subject, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    (directory / f"{name}.pem").write_text(key.read_text() + certificate.read_text())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if missing := apache.why_not() or (None if shutil.which("openssl") else "openssl is not installed"):
        pytest.skip(f"no secured Apache Kafka: {missing}")
    secured = Secured(tmp_path_factory.mktemp("secured"))
    for name in ("broker", "client"):
        make_certificate(secured.directory, name)
    kafka = apache.ApacheKafka(secured.directory / "kafka", heap="300m")
    names = {"tls": "SSL", "mutual": "SSL", "login": "SASL_SSL"}
    listeners = [f"{name.upper()}://{secured.address(name)}" for name in names]
    kafka.properties = {
        "listeners": ",".join(
            [f"PLAINTEXT://127.0.0.1:{kafka.port}", f"CONTROLLER://127.0.0.1:{kafka.controller_port}", *listeners]
        ),
        "listener.security.protocol.map": ",".join(
            ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{name.upper()}:{kind}" for name, kind in names.items())]
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(secured.directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.directory / "client.crt"),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} user_alice="pl\\\\"ain";',
        "listener.name.login.scram-sha-256.sasl.jaas.config": SCRAM,
        "listener.name.login.scram-sha-512.sasl.jaas.config": SCRAM,
    }
    with kafka:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            change = ["--alter", "--add-config", f"{mechanism}=[password={mechanism}-secret]"]
            where = ["--bootstrap-server", kafka.bootstrap_servers, "--entity-type", "users", "--entity-name", "bob"]
            apache.run_tool("kafka.admin.ConfigCommand", *where, *change)
        yield secured


def brokers_at(address: str, config: Mapping[str, str]) -> int:
    async def ask() -> int:
        options = ClientOptions(security=parse_security(config))
        async with Cluster(OsNet(), SystemClock(), address, options=options) as cluster:
            return len((await cluster.refresh([])).brokers)

    return asyncio.run(ask())


def trusting(secured: Secured, protocol: str) -> dict[str, str]:
    return {"security.protocol": protocol, "ssl.ca.location": str(secured.directory / "broker.crt")}


def test_tls_with_a_certificate_that_is_trusted(secured: Secured) -> None:
    assert brokers_at(secured.address("tls"), trusting(secured, "SSL")) == 1
    inline = (secured.directory / "broker.crt").read_text()
    assert brokers_at(secured.address("tls"), {"security.protocol": "SSL", "ssl.truststore.certificates": inline}) == 1


def test_a_broker_that_nobody_vouches_for_is_not_talked_to(secured: Secured) -> None:
    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        brokers_at(secured.address("tls"), {"security.protocol": "SSL"})


def test_a_name_that_the_certificate_lacks_is_refused_unless_told_otherwise(secured: Secured) -> None:
    address, config = f"localhost:{secured.ports['tls']}", trusting(secured, "SSL")
    with pytest.raises(UnreachableError, match="mismatch"):
        brokers_at(address, config)
    assert brokers_at(address, {**config, "ssl.endpoint.identification.algorithm": ""}) == 1


def test_a_broker_that_wants_a_certificate_of_ours(secured: Secured) -> None:
    config = trusting(secured, "SSL")
    with pytest.raises(ClientError):
        brokers_at(secured.address("mutual"), config)
    apart = {
        "ssl.certificate.location": str(secured.directory / "client.crt"),
        "ssl.key.location": str(secured.directory / "client.key"),
    }
    assert brokers_at(secured.address("mutual"), {**config, **apart}) == 1
    assert (
        brokers_at(
            secured.address("mutual"), {**config, "ssl.keystore.location": str(secured.directory / "client.pem")}
        )
        == 1
    )


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "alice", 'pl"ain'),
        ("SCRAM-SHA-256", "bob", "SCRAM-SHA-256-secret"),
        ("SCRAM-SHA-512", "bob", "SCRAM-SHA-512-secret"),
    ],
)
def test_logins_over_tls(secured: Secured, mechanism: str, user: str, password: str) -> None:
    config = {**trusting(secured, "SASL_SSL"), "sasl.mechanism": mechanism, "sasl.username": user}
    assert brokers_at(secured.address("login"), {**config, "sasl.password": password}) == 1
    with pytest.raises(AuthenticationError, match=f"{user} at 127.0.0.1:.* by {mechanism}: "):
        brokers_at(secured.address("login"), {**config, "sasl.password": "wrong"})
