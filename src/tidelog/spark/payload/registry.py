"""A client of a schema registry over HTTP, synchronous, as small as payloads need it.

It fetches a schema by id or by subject and version, looks an id up, and registers when it is told to. Answers are not
kept here. What the registry does not know is an Unknown; all else that goes wrong is a RegistryError, after retries
where a retry can help. No error's text holds a secret: neither headers nor the user of the URL are in it.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from tidelog.spark.payload.errors import RegistryError, reason
from tidelog.spark.payload.registry_options import RegistryOptions
from tidelog.spark.payload.schema import AVRO, JSON, PROTOBUF, Named, Schema

_FORMAT_OF = {"AVRO": AVRO, "JSON": JSON, "PROTOBUF": PROTOBUF}
_TYPE_OF = {name: kind for kind, name in _FORMAT_OF.items()}
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_ANSWER_SIZE_MAX = 16 << 20
_REFERENCES_MAX = 256
_BACKOFF_S = 0.1


class Unknown(LookupError):
    """The registry answered that it has no such schema, subject or version."""


class Registry:
    # Executors and the driver have no loop of ours: a retry waits in its thread.
    def __init__(self, options: RegistryOptions, pause: Callable[[float], None] = time.sleep) -> None:  # noqa: TID251
        self._options = options
        self._pause = pause
        secure = (urllib.request.HTTPSHandler(context=options.tls()),) if options.url.startswith("https:") else ()
        self._opener = urllib.request.build_opener(*secure)

    def schema(self, number: int) -> Schema:
        return self._schema(self._ask("GET", f"/schemas/ids/{number}"), number)

    def serialized(self, number: int) -> str:
        """The Protobuf schema as a FileDescriptorProto in base64, for texts that our parser refuses."""
        return str(self._field(self._ask("GET", f"/schemas/ids/{number}?format=serialized"), "schema"))

    def version(self, subject: str, version: str | int = "latest") -> Schema:
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{quote(str(version), safe='')}")
        return self._schema(answer, int(self._field(answer, "id")))

    def look_up(self, subject: str, schema: Schema, references: list[dict[str, Any]]) -> int:
        path = f"/subjects/{quote(subject, safe='')}"
        return int(self._field(self._ask("POST", path, _posted(schema, references)), "id"))

    def register(self, subject: str, schema: Schema, references: list[dict[str, Any]]) -> int:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return int(self._field(self._ask("POST", path, _posted(schema, references)), "id"))

    def named(self, references: list[dict[str, Any]]) -> tuple[Named, ...]:
        """The schemas behind references of the form {name, subject, version}."""
        return self._named(references, [_REFERENCES_MAX])

    def _schema(self, answer: dict[str, Any], number: int | None, left: list[int] | None = None) -> Schema:
        kind = answer.get("schemaType") or "AVRO"
        if kind not in _FORMAT_OF:
            raise RegistryError(f"the registry has schema {number} as {kind!r}, which is not read")
        references = self._named(answer.get("references") or [], left if left is not None else [_REFERENCES_MAX])
        return Schema(_FORMAT_OF[kind], str(self._field(answer, "schema")), references, number)

    def _named(self, references: list[dict[str, Any]], left: list[int]) -> tuple[Named, ...]:
        found = []
        for reference in references:
            left[0] -= 1
            if left[0] < 0:
                raise RegistryError(f"a schema has more than {_REFERENCES_MAX} references")
            path = f"/subjects/{quote(reference['subject'], safe='')}/versions/{reference['version']}"
            try:
                answer = self._ask("GET", path)
            except Unknown as gone:
                raise RegistryError(f"reference {reference['name']!r} is not in the registry: {gone}") from None
            found.append(Named(reference["name"], self._schema(answer, answer.get("id"), left)))
        return tuple(found)

    def _field(self, answer: dict[str, Any], name: str) -> Any:
        if name not in answer:
            raise RegistryError(f"{self._options.url} answered without {name!r}: is this a schema registry?")
        return answer[name]

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        for attempt in range(self._options.retries + 1):
            if attempt:
                self._pause(_BACKOFF_S * 2 ** (attempt - 1))
            try:
                return self._once(method, path, body)
            except _Passing as passing:
                failure = passing
        times = self._options.retries + 1
        raise RegistryError(f"{method} {self._options.url}{path} failed {times} times, the last: {failure}") from None

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        url = self._options.url + path
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method)
        request.add_header("Accept", f"{_MEDIA_TYPE}, application/json")
        if data is not None:
            request.add_header("Content-Type", _MEDIA_TYPE)
        authorization = self._options.authorization()
        if authorization is not None:
            # Unredirected: a redirect to another host must not carry it there.
            request.add_unredirected_header("Authorization", authorization)
        try:
            with self._opener.open(request, timeout=self._options.timeout_s) as answer:
                text = answer.read(_ANSWER_SIZE_MAX + 1)
        except urllib.error.HTTPError as refused:
            with refused:
                raise self._refusal(method, url, refused.code, refused.read(_ANSWER_SIZE_MAX)) from None
        except (OSError, http.client.HTTPException) as away:
            raise _Passing(reason(away)) from None
        if len(text) > _ANSWER_SIZE_MAX:
            raise RegistryError(f"{method} {url} answered with more than {_ANSWER_SIZE_MAX} bytes")
        return _parsed(method, url, text)

    def _refusal(self, method: str, url: str, status: int, text: bytes) -> Exception:
        code, message = _error_of(text)
        if status == 404 and code // 100 == 404:
            return Unknown(f"{message} ({code})")
        told = f"HTTP {status}" + (f", {message} ({code})" if code else "")
        if status >= 500 or status == 429:
            return _Passing(told)
        if status in (401, 403):
            return RegistryError(
                f"{method} {url}: {told}: the registry refuses these credentials, or that there are none"
            )
        return RegistryError(f"{method} {url}: {told}")


class _Passing(Exception):
    """May go away by itself."""


def _posted(schema: Schema, references: list[dict[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.format != AVRO:
        body["schemaType"] = _TYPE_OF[schema.format]
    if references:
        body["references"] = references
    return body


def _parsed(method: str, url: str, text: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RegistryError(f"{method} {url} did not answer with a JSON object: is this a schema registry?")
    return answer


def _error_of(text: bytes) -> tuple[int, str]:
    try:
        answer = json.loads(text)
        return int(answer["error_code"]), str(answer.get("message", ""))
    except (ValueError, TypeError, KeyError):
        return 0, ""
