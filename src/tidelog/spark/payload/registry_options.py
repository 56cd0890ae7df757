"""Where a registry is and how to speak to it.

Travels to the executors; its secrets are in no text that it gives of itself.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from tidelog.spark.payload.errors import SchemaError

ALLOWED = (
    "basic.auth.user.info",
    "bearer.auth.token",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "timeout.ms",
    "retries",
)


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    url: str
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    timeout_s: float = 10.0
    retries: int = 3

    @classmethod
    def of(cls, url: str, options: Mapping[str, str] | None = None) -> RegistryOptions:
        """From a URL, which may carry `user:password@`, and options of the names that Confluent's clients use."""
        options = dict(options or {})
        for name in options:
            if name not in ALLOWED:
                raise SchemaError(f"registry option {name!r} is not known, use one of {', '.join(ALLOWED)}")
        bare, in_url = _without_user(url)
        user_info = options.get("basic.auth.user.info", in_url)
        token = options.get("bearer.auth.token")
        if user_info is not None and token is not None:
            raise SchemaError("basic.auth.user.info and bearer.auth.token exclude each other")
        if options.get("ssl.key.location") and not options.get("ssl.certificate.location"):
            raise SchemaError("ssl.key.location needs ssl.certificate.location")
        return cls(
            url=bare,
            user_info=user_info,
            token=token,
            ca=options.get("ssl.ca.location"),
            certificate=options.get("ssl.certificate.location"),
            key=options.get("ssl.key.location"),
            timeout_s=_whole(options, "timeout.ms", 10_000, least=1) / 1000,
            retries=_whole(options, "retries", 3, least=0),
        )

    def authorization(self) -> str | None:
        if self.token is not None:
            return f"Bearer {self.token}"
        if self.user_info is not None:
            return "Basic " + base64.b64encode(self.user_info.encode()).decode()
        return None

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


def _without_user(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # Not the text itself: a password may stand in it.
        raise SchemaError("the registry's URL must be http://host[:port][/path] or https://host[:port][/path]")
    if parts.query or parts.fragment:
        raise SchemaError("the registry's URL has a query or a fragment, which it must not")
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), unquote(user) if at else None


def _whole(options: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = str(options.get(name, default))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise SchemaError(f"registry option {name} is {text!r}, it must be a whole number of at least {least}")
    return int(text)
