"""Request and response headers and the four-byte size in front of each, for both ends of a connection.

Which header a request carries depends on its API and version, so the header is read with the table of APIs at hand.
Owns no buffer and no socket: a frame is given whole, without its size.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from msgspec import Struct

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.apis import APIS, ApiKey
from tidelog.protocol.codec import Buffer, encode_parts
from tidelog.protocol.source import skip_tags

_REQUEST = struct.Struct(">hhih")
_SIZE_AND_REQUEST = struct.Struct(">ihhih")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_CORRELATION = struct.Struct(">i")
_NO_TAGS = b"\x00"
_COPIED_BYTES_MAX = 4096


class RequestHead(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_head(frame: Buffer) -> RequestHead:
    """The header of a request frame, versions 1 and 2. An unknown API is a ProtocolError: its header cannot be told."""
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
        api = APIS.get(api_key)
        if api is None:
            raise ProtocolError(f"a request with the unknown API key {api_key}")
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise ProtocolError("the client id of a request header is longer than the request")
            client_id = str(frame[10:position], "utf-8")
        if version >= api.flexible_from:
            tags = frame[position]
            position += 1
            if tags:
                position = skip_tags(frame, position, tags, len(frame))
    except (struct.error, IndexError) as error:
        raise ProtocolError("a request that ends within its header") from error
    except UnicodeDecodeError as error:
        raise ProtocolError("the client id of a request header is not UTF-8") from error
    return RequestHead(api_key, version, correlation_id, client_id, position)


def read_response_head(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id of a response frame and the position of its body."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        position = 4
        if _response_has_tags(api_key, version):
            tags = frame[position]
            position += 1
            if tags:
                position = skip_tags(frame, position, tags, len(frame))
    except (struct.error, IndexError) as error:
        raise ProtocolError("a response that ends within its header") from error
    return correlation_id, position


def encode_request(message: Struct, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request frame with its size in front."""
    shape: Any = type(message)
    parts = encode_parts(message, version)
    client = b"" if client_id is None else client_id.encode()
    tags = _NO_TAGS if version >= shape.FLEXIBLE_FROM else b""
    length = -1 if client_id is None else len(client)
    size = 10 + len(client) + len(tags) + sum(map(len, parts))
    head = _SIZE_AND_REQUEST.pack(size, shape.API_KEY, version, correlation_id, length)
    return b"".join([head, client, tags, *parts])


def encode_response(message: Struct, version: int, correlation_id: int) -> bytes:
    """A response frame with its size in front."""
    return b"".join(encode_response_parts(message, version, correlation_id))


def encode_response_parts(message: Struct, version: int, correlation_id: int) -> list[Buffer]:
    """The same in pieces, large records uncopied, for a gathering write."""
    shape: Any = type(message)
    parts = encode_parts(message, version)
    size = sum(map(len, parts))
    head = response_head(shape.API_KEY, version, correlation_id, size)
    if size < _COPIED_BYTES_MAX:
        return [b"".join([head, *parts])]
    return _gathered([head, *parts])


def _gathered(parts: list[Buffer]) -> list[Buffer]:
    """The codec's pieces are a few bytes each, and a transport pays for every one of them: join what is small."""
    gathered: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < _COPIED_BYTES_MAX:
            small.append(part)
            continue
        if small:
            gathered.append(b"".join(small))
            small = []
        gathered.append(part)
    if small:
        gathered.append(b"".join(small))
    return gathered


def response_head(api_key: int, version: int, correlation_id: int, body_size: int) -> bytes:
    """Size and header in front of a response body that the caller has encoded (or cached) himself."""
    if _response_has_tags(api_key, version):
        return _SIZE_AND_CORRELATION.pack(body_size + 5, correlation_id) + _NO_TAGS
    return _SIZE_AND_CORRELATION.pack(body_size + 4, correlation_id)


def _response_has_tags(api_key: int, version: int) -> bool:
    # An old client must be able to read the answer to a version of ApiVersions that it guessed: no tags there, ever.
    return api_key != ApiKey.API_VERSIONS and version >= APIS[api_key].flexible_from
