"""A data file as it is told from where it is written to where it is committed, and how files are named.

Names are never used twice: a batch that is written again after a crash makes new ones, so nothing that was half written
can be taken for something else.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from tidelog.spark.lake.errors import LakeError

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
HIDDEN: Final = "_"
SUFFIX: Final = ".parquet"


class ColumnStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    low: int | str | None = None
    high: int | str | None = None
    nulls: int = 0


class DataFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    """Below the table's directory, parted by slashes."""
    size: int
    rows: int
    partition: dict[str, str | None] = {}
    """As text: 2026-11-16, 7, true; None is null."""
    stats: dict[str, ColumnStats] = {}

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def plain_name(name: str) -> str:
    """A file's name when readers may see it."""
    return name.removeprefix(HIDDEN)


def hidden_path(path: str) -> str:
    """Where a file lies while readers by glob must not see it: Spark, pyarrow and Hive skip such names."""
    head, slash, name = path.rpartition("/")
    return f"{head}{slash}{HIDDEN}{name}"


def new_name(label: str) -> str:
    return f"{_safe(label)}-{secrets.token_hex(8)}{SUFFIX}"


def partition_directory(values: Mapping[str, str | None], columns: Sequence[str], *, exact: bool) -> str:
    """`event_date=2026-11-16`. Exact names can be read back by Hive's rules (Parquet, where the path is the value);
    the others are for people, and keep to letters that need no escape in any log."""
    parts = []
    for column in columns:
        value = values[column]
        if value is None:
            text = NULL_PARTITION
        else:
            text = quote(value, safe="") if exact else _safe(value)
        parts.append(f"{column}={text}")
    return "/".join(parts)


def local_path(uri: str) -> str:
    """The path in `file:///x`, `file:/x` or `/x`."""
    if uri.startswith("file:"):
        uri = uri.removeprefix("file:")
        uri = uri.removeprefix("//") if uri.startswith("///") else uri
    return os.path.abspath(uri)


def table_directory(uri: str) -> str:
    if "://" in uri and not uri.startswith("file:///"):
        scheme = uri.partition(":")[0]
        raise LakeError(f"{uri}: a table lies in a directory (a path or file:///...), {scheme} is not supported")
    if not uri.strip():
        raise LakeError("the table's directory is an empty text")
    return local_path(uri)


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:64]
