"""SASL from the client's side: PLAIN and SCRAM (RFC 5802), as conversations of bytes. Owns no connection.

As Kafka does it: names and passwords are UTF-8 as they are given, without SASLprep and without channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from tidelog.client.errors import AuthenticationError

Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: Final[tuple[Mechanism, ...]] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ROUNDS_MIN: Final = 4096
_ROUNDS_MAX: Final = 1 << 20
"""A server could ask for rounds that never end."""


@dataclass(frozen=True, slots=True)
class Login:
    mechanism: Mechanism
    username: str
    password: str = field(repr=False)


class Conversation(Protocol):
    def begin(self) -> bytes: ...

    def reply(self, said: bytes) -> bytes | None:
        """To what the server said; None when it is over. AuthenticationError when the server is not to be trusted."""
        ...


def converse(login: Login, nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24)) -> Conversation:
    if login.mechanism == "PLAIN":
        return _Plain(login)
    return _Scram(login, _HASHES[login.mechanism], nonce())


class _Plain:
    def __init__(self, login: Login) -> None:
        self._login = login

    def begin(self) -> bytes:
        return f"\0{self._login.username}\0{self._login.password}".encode()

    def reply(self, said: bytes) -> None:
        return None


class _Scram:
    def __init__(self, login: Login, hash_name: str, nonce: str) -> None:
        self._login = login
        self._hash = hash_name
        self._nonce = nonce
        name = login.username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._signature: bytes | None = None

    def begin(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def reply(self, said: bytes) -> bytes | None:
        if self._signature is None:
            return self._prove(said)
        fields = _fields(said)
        if "e" in fields:
            raise AuthenticationError(f"the broker refused: {fields['e']}")
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._signature):
            raise AuthenticationError("the broker does not know the password either: its signature is wrong")
        return None

    def _prove(self, said: bytes) -> bytes:
        fields = _fields(said)
        if "e" in fields:
            raise AuthenticationError(f"the broker refused: {fields['e']}")
        nonce, salt, rounds = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the broker's nonce is not made of ours")
        if not rounds.isascii() or not rounds.isdigit() or not _ROUNDS_MIN <= int(rounds) <= _ROUNDS_MAX:
            raise AuthenticationError(f"{rounds!r} rounds were asked for, allowed: {_ROUNDS_MIN} to {_ROUNDS_MAX}")
        salted = hashlib.pbkdf2_hmac(self._hash, self._login.password.encode(), salt, int(rounds))
        bare_final = f"c=biws,r={nonce}"  # "n,,": no channel binding
        text = f"{self._first_bare},{said.decode()},{bare_final}".encode()
        client_key = self._mac(salted, b"Client Key")
        proof = self._mac(hashlib.new(self._hash, client_key).digest(), text)
        self._signature = self._mac(self._mac(salted, b"Server Key"), text)
        masked = bytes(left ^ right for left, right in zip(client_key, proof, strict=True))
        return f"{bare_final},p={base64.b64encode(masked).decode()}".encode()

    def _mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self._hash).digest()


def _fields(said: bytes) -> dict[str, str]:
    try:
        parts = said.decode().split(",")
    except UnicodeDecodeError:
        raise AuthenticationError("the broker's SASL message is not UTF-8") from None
    return {part[:1]: part[2:] for part in parts if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationError("the broker's SASL message has base64 that is none") from None
