"""Kafka's names for security, Java's and librdkafka's, to how a connection is made.

Keys and certificates are PEM, in files or (certificates to trust) in the config itself: Java's own key stores (JKS,
PKCS12) are not read. Whatever is given and would not be honoured is refused.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Final, get_args

from tidelog.client.sasl import MECHANISMS, Login, Mechanism
from tidelog.client.security import Security
from tidelog.kernel.errors import TidelogError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_NAMES: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
SASL_NAMES: Final = ("sasl.jaas.config", "sasl.mechanism", "sasl.mechanisms", "sasl.password", "sasl.username")
NAMES: Final = ("security.protocol", *TLS_NAMES, *SASL_NAMES)

_JAAS: Final = re.compile(r"\s*([\w.]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.DOTALL)
_JAAS_PAIR: Final = re.compile(r"""\s*([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))""")
_MODULES: Final = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}


class SecurityConfigError(TidelogError):
    """Names the config and what is allowed; never a password."""


def parse_security(config: Mapping[str, str], *, prefix: str = "") -> Security:
    """`config` may have other names too. `prefix` is what the user writes before the names."""
    protocol = config.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        expected = ", ".join(PROTOCOLS)
        raise SecurityConfigError(
            f"{prefix}security.protocol={config['security.protocol']}: expected one of {expected}"
        )
    for names, fits, needed in (
        (TLS_NAMES, protocol in ("SSL", "SASL_SSL"), "SSL or SASL_SSL"),
        (SASL_NAMES, protocol in ("SASL_PLAINTEXT", "SASL_SSL"), "SASL_PLAINTEXT or SASL_SSL"),
    ):
        if not fits and (given := [name for name in names if name in config]):
            raise SecurityConfigError(
                f"{prefix}{given[0]} has no effect with {prefix}security.protocol={protocol}: it wants {needed}"
            )
    return Security(
        _tls(config, prefix) if protocol.endswith("SSL") else None,
        _login(config, prefix) if protocol.startswith("SASL") else None,
    )


def _tls(config: Mapping[str, str], prefix: str) -> ssl.SSLContext:
    for kind in ("truststore", "keystore"):
        store_type = config.get(f"ssl.{kind}.type", "PEM")
        if store_type.upper() != "PEM":
            raise SecurityConfigError(f"{prefix}ssl.{kind}.type={store_type}: only PEM can be read here; convert it")
    context = ssl.create_default_context()
    trusted = [config[name] for name in ("ssl.ca.location", "ssl.truststore.location") if name in config]
    inline = config.get("ssl.truststore.certificates")
    if trusted or inline is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # these, and not the system's as well
        for path in trusted:
            _load(lambda path=path: context.load_verify_locations(cafile=path), prefix, "ssl.ca.location", path)
        if inline is not None:
            _load(lambda: context.load_verify_locations(cadata=inline), prefix, "ssl.truststore.certificates", "(PEM)")
    chain = config.get("ssl.certificate.location") or config.get("ssl.keystore.location")
    if chain is not None:
        key, password = config.get("ssl.key.location"), config.get("ssl.key.password")
        # Without a password OpenSSL would ask for one on the terminal.
        _load(
            lambda: context.load_cert_chain(chain, key, password if password is not None else ""),
            prefix,
            "ssl.certificate.location",
            chain,
        )
    algorithm = config.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "", "none"):
        raise SecurityConfigError(
            f"{prefix}ssl.endpoint.identification.algorithm={algorithm}: expected https, or nothing to take any name"
        )
    context.check_hostname = algorithm == "https"
    return context


def _load(action: object, prefix: str, name: str, path: str) -> None:
    assert callable(action)
    try:
        action()
    except ssl.SSLError as error:
        raise SecurityConfigError(f"{prefix}{name}: {path} is not read as PEM: {error.reason or error}") from None
    except OSError as error:
        raise SecurityConfigError(f"{prefix}{name}: {path}: {error.strerror}") from None


def _login(config: Mapping[str, str], prefix: str) -> Login:
    named = config.get("sasl.mechanism", config.get("sasl.mechanisms"))
    username, password = config.get("sasl.username"), config.get("sasl.password")
    allowed: tuple[str, ...] = MECHANISMS
    if (jaas := config.get("sasl.jaas.config")) is not None:
        allowed, username, password = _read_jaas(jaas, prefix)
    if named is None:
        if len(allowed) > 1:
            raise SecurityConfigError(f"{prefix}sasl.mechanism is missing; expected one of {', '.join(allowed)}")
        named = allowed[0]
    mechanism = next((one for one in get_args(Mechanism) if one == named.upper() and one in allowed), None)
    if mechanism is None:
        raise SecurityConfigError(f"{prefix}sasl.mechanism={named}: expected one of {', '.join(allowed)}")
    for what, given in (("username", username), ("password", password)):
        if not given:
            raise SecurityConfigError(f"{prefix}sasl.{what} is missing (or {what} in {prefix}sasl.jaas.config)")
    assert username and password
    if "\0" in username + password:
        raise SecurityConfigError(f"{prefix}sasl.username and {prefix}sasl.password cannot have a zero byte")
    return Login(mechanism, username, password)


def _read_jaas(text: str, prefix: str) -> tuple[tuple[str, ...], str | None, str | None]:
    """As Spark's users write it for the Java client: MODULE required username="..." password="...";"""
    name = f"{prefix}sasl.jaas.config"
    found = _JAAS.fullmatch(text)
    if found is None:
        raise SecurityConfigError(f'{name}: expected MODULE required username="..." password="...";')
    module, rest = found.group(1).rpartition(".")[2], found.group(2)
    if module not in _MODULES:
        raise SecurityConfigError(f"{name}: {module} is not known; expected one of {', '.join(_MODULES)}")
    pairs: dict[str, str] = {}
    position = 0
    while pair := _JAAS_PAIR.match(rest, position):
        quoted, bare = pair.group(2), pair.group(3)
        pairs[pair.group(1)] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
        position = pair.end()
    if rest[position:].strip():
        raise SecurityConfigError(f'{name}: what follows {module} cannot be read: expected NAME="VALUE" pairs, then ;')
    return _MODULES[module], pairs.get("username"), pairs.get("password")
