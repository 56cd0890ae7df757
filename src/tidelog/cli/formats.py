"""Records as text: in the way of Apache's console tools, by a format as in kcat, and as lines of JSON both ways."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.cli.common import CommandError, UsageError

if TYPE_CHECKING:
    from tidelog.client.records import ConsumedRecord

Headers = Sequence[tuple[str, bytes | None]]
Formatter = Callable[["ConsumedRecord"], bytes]


# JSON lines


def json_line(record: ConsumedRecord) -> bytes:
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if record.is_append_time else "CreateTime",
        "key": to_json(record.key),
        "value": to_json(record.value),
        "headers": [[name, to_json(value)] for name, value in record.headers],
    }
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def to_json(data: bytes | None) -> str | dict[str, str] | None:
    """Text as text; bytes that are no text as {"base64": ...}, so that nothing is lost on the way back."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


class InputRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def from_json_line(line: bytes, number: int) -> InputRecord:
    """What json_line writes; all but the value may be missing. A value that is neither text nor base64 stays JSON."""
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError("expected an object")
        if "value" not in document and "payload" not in document:
            raise ValueError('expected a field "value"')
        headers = document.get("headers") or []
        pairs = headers.items() if isinstance(headers, dict) else headers
        return InputRecord(
            key=_from_json(document.get("key")),
            value=_from_json(document.get("value", document.get("payload"))),
            headers=tuple((str(name), _from_json(value)) for name, value in pairs),
            partition=_number(document.get("partition"), "partition"),
            timestamp=_number(document.get("timestamp"), "timestamp"),
        )
    except (ValueError, TypeError, Base64Error) as error:
        raise CommandError(f"line {number} is not a record in JSON: {error}") from None


def _from_json(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"}:
        return b64decode(str(value["base64"]), validate=True)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _number(value: Any, name: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{name} is not a whole number")
    return value


# Apache's console consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What of a record is printed, in the order and words of Apache's console consumer."""

    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    headers: bool = False
    key: bool = False
    value: bool = True
    separator: bytes = b"\t"
    line_end: bytes = b"\n"
    null: bytes = b"null"

    def __call__(self, record: ConsumedRecord) -> bytes:
        parts: list[bytes] = []
        if self.timestamp:
            kind = "LogAppendTime" if record.is_append_time else "CreateTime"
            parts.append(f"{kind}:{record.timestamp}".encode())
        if self.partition:
            parts.append(f"Partition:{record.partition}".encode())
        if self.offset:
            parts.append(f"Offset:{record.offset}".encode())
        if self.headers:
            parts.append(self._headers(record.headers))
        if self.key:
            parts.append(self.null if record.key is None else record.key)
        if self.value:
            parts.append(self.null if record.value is None else record.value)
        return self.separator.join(parts) + self.line_end

    def _headers(self, headers: Headers) -> bytes:
        shown = [name.encode() + b":" + (self.null if value is None else value) for name, value in headers]
        return b",".join(shown) or b"NO_HEADERS"


PROPERTIES: Final = {
    "print.timestamp": "timestamp",
    "print.partition": "partition",
    "print.offset": "offset",
    "print.headers": "headers",
    "print.key": "key",
    "print.value": "value",
    "key.separator": "separator",
    "line.separator": "line_end",
    "null.literal": "null",
}


def apply_property(fields: dict[str, Any], name: str, value: str) -> None:
    """A --formatter-property of Apache's console consumer."""
    field = PROPERTIES.get(name)
    if field is None:
        raise UsageError(f"{name!r} is not a property of the formatter; known are {', '.join(PROPERTIES)}")
    if field in ("separator", "line_end", "null"):
        fields[field] = unescape(value)
    elif value in ("true", "false"):
        fields[field] = value == "true"
    else:
        raise UsageError(f"{name}={value}: expected true or false")


# kcat's format

_TOKENS: Final[dict[str, Callable[[ConsumedRecord], bytes]]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    "s": lambda record: record.value or b"",
    "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    "T": lambda record: b"%d" % record.timestamp,
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"NULL") for name, value in record.headers),
    "%": lambda record: b"%",
}


def compile_format(text: str) -> Formatter:
    """%t topic, %p partition, %o offset, %k key, %K its size, %s value, %S its size, %T timestamp, %h headers."""
    parts: list[bytes | Callable[[ConsumedRecord], bytes]] = []
    pieces = text.split("%")
    parts.append(unescape(pieces[0]))
    index = 1
    while index < len(pieces):
        piece = pieces[index]
        token = piece[:1] or "%"
        if token not in _TOKENS or (not piece and index + 1 == len(pieces)):
            known = " ".join(f"%{one}" for one in _TOKENS)
            raise UsageError(f"%{piece[:1]} in --format is unknown; known are {known}")
        parts.append(_TOKENS[token])
        if piece:
            parts.append(unescape(piece[1:]))
        else:
            index += 1  # %% splits into an empty piece and the text behind it
            parts.append(unescape(pieces[index]))
        index += 1
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def unescape(text: str) -> bytes:
    """Backslash escapes as shells pass them on: \\n \\t \\r \\0 \\xHH and a double backslash."""
    escapes = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
    out = bytearray()
    index = 0
    while index < len(text):
        following = text[index + 1 : index + 2]
        if text[index] == "\\" and following in escapes and following:
            out += escapes[following]
            index += 2
        elif text[index] == "\\" and following == "x" and _is_hex(text[index + 2 : index + 4]):
            out.append(int(text[index + 2 : index + 4], 16))
            index += 4
        else:
            out += text[index].encode()
            index += 1
    return bytes(out)


def _is_hex(text: str) -> bool:
    return len(text) == 2 and all(char in "0123456789abcdefABCDEF" for char in text)
