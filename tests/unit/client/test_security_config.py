"""Kafka's security settings: what is taken, and what is refused by name without showing a password."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.sasl import Login
from tidelog.client.security import PLAINTEXT
from tidelog.client.security_config import SecurityConfigError, parse_security

SASL = {"security.protocol": "SASL_PLAINTEXT"}
MODULE = "org.apache.kafka.common.security"


def test_nothing_said_is_plaintext() -> None:
    assert parse_security({"fetch.min.bytes": "1"}) == PLAINTEXT


@pytest.mark.parametrize(
    ("config", "login"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}, Login("PLAIN", "a", "b")),
        (
            {"sasl.mechanisms": "scram-sha-256", "sasl.username": "a", "sasl.password": "b"},
            Login("SCRAM-SHA-256", "a", "b"),
        ),
        (
            {"sasl.jaas.config": f'{MODULE}.plain.PlainLoginModule required username="a b" password="c\\"d;";'},
            Login("PLAIN", "a b", 'c"d;'),
        ),
        (
            {
                "sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required\n username=a\n password=b ; ",
                "sasl.mechanism": "SCRAM-SHA-512",
            },
            Login("SCRAM-SHA-512", "a", "b"),
        ),
    ],
)
def test_logins(config: dict[str, str], login: Login) -> None:
    found = parse_security({**SASL, **config})
    assert (found.tls, found.login) == (None, login)
    secured = parse_security({**SASL, **config, "security.protocol": "sasl_ssl"})
    assert secured.login == login and isinstance(secured.tls, ssl.SSLContext)


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_any_password_passes_through_jaas(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    config = {**SASL, "sasl.jaas.config": f'x.PlainLoginModule required username="u" password="{quoted}";'}
    assert parse_security(config).login == Login("PLAIN", "u", password)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"security.protocol": "TLS"}, r"p\.security\.protocol=TLS: expected one of PLAINTEXT, SSL"),
        ({"ssl.ca.location": "x"}, r"p\.ssl\.ca\.location has no effect with p\.security\.protocol=PLAINTEXT"),
        ({"sasl.password": "hidden", "security.protocol": "SSL"}, r"p\.sasl\.password has no effect"),
        (SASL, r"p\.sasl\.mechanism is missing; expected one of PLAIN, SCRAM-SHA-256"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, r"p\.sasl\.mechanism=GSSAPI: expected one of PLAIN"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.password": "hidden"}, r"p\.sasl\.username is missing"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "hid\0den"}, "zero byte"),
        ({**SASL, "sasl.jaas.config": 'Plain required password="hidden"'}, "expected MODULE required username"),
        ({**SASL, "sasl.jaas.config": 'x.Krb5LoginModule required password="hidden";'}, "Krb5LoginModule is not known"),
        ({**SASL, "sasl.jaas.config": 'x.PlainLoginModule required "hidden";'}, "what follows PlainLoginModule"),
        (
            {
                **SASL,
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": 'x.ScramLoginModule required username="u" password="hidden";',
            },
            "PLAIN: expected one of SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, r"p\.ssl\.truststore\.type=JKS: only PEM"),
        ({"security.protocol": "SSL", "ssl.ca.location": "none.pem"}, r"p\.ssl\.ca\.location: none\.pem: No such file"),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "hm"}, "is not read as PEM"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "none.pem"}, "none.pem: No such file"),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"},
            "ldaps: expected https, or nothing",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_and_no_password_shown(config: dict[str, str], says: str) -> None:
    with pytest.raises(SecurityConfigError, match=says) as caught:
        parse_security(config, prefix="p.")
    assert "hid" not in str(caught.value)


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(SecurityConfigError, match=r"ssl\.ca\.location: .*ca\.pem is not read as PEM"):
        parse_security({"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")})


@pytest.mark.parametrize(("algorithm", "checks"), [("https", True), ("HTTPS", True), ("", False), ("none", False)])
def test_the_name_of_a_broker_is_checked_unless_told_otherwise(algorithm: str, checks: bool) -> None:
    tls = parse_security({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": algorithm}).tls
    assert tls is not None
    assert (tls.check_hostname, tls.verify_mode) == (checks, ssl.CERT_REQUIRED)
