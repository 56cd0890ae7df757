"""How a connection is protected, and who we say we are on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ssl import SSLContext

    from tidelog.client.sasl import Login


class Security(NamedTuple):
    tls: SSLContext | None = None
    login: Login | None = None


PLAINTEXT: Final = Security()
