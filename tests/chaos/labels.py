"""What a record is called in a history. Where records have keys they carry an id in a header: a tombstone has no value
that could tell it from the next one."""

from __future__ import annotations

from confluent_kafka import Message

ID = "id"


def labelled(name: str, number: str, *, is_tombstone: bool) -> str:
    return f"{name}={'~' if is_tombstone else ''}{number}"


def label_of(message: Message) -> str:
    key, value = message.key(), message.value()
    if key is None:
        return (value or b"").decode()
    headers = dict(message.headers() or ())
    return labelled(key.decode(), (headers.get(ID) or b"").decode(), is_tombstone=value is None)
