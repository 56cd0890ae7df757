"""What Delta's log says and the deltalake library does not tell: all transactions, and a commit's actions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow.parquet as pq

from tidelog.spark.lake.errors import LakeError

LOG: Final = "_delta_log"
# What deltalake 1.6 escapes in a path when it writes it down, with control characters and all that is not ASCII.
_ESCAPED: Final = frozenset('\\{}^%`]">[<#|*?')
_KEPT: Final = "".join(chr(code) for code in range(32, 127) if chr(code) not in _ESCAPED)


def transactions(root: str, version: int) -> Iterator[tuple[str, int]]:
    """(app id, version), of one id the last one last."""
    directory = os.path.join(root, LOG)
    names = sorted(os.listdir(directory))
    checkpoints = [name for name in names if name.endswith(".checkpoint.parquet") and int(name[:20]) <= version]
    start = 0
    if checkpoints:
        start = int(checkpoints[-1][:20]) + 1
        column = pq.read_table(os.path.join(directory, checkpoints[-1]), columns=["txn"]).column("txn")
        yield from ((found["appId"], found["version"]) for found in column.to_pylist() if found is not None)
    for number in range(start, version + 1):
        for action in actions(os.path.join(directory, f"{number:020}.json")):
            if found := action.get("txn"):
                yield found["appId"], found["version"]


def actions(path: str) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())


def unescaped(path: str) -> str:
    """What the library must be told to write `path` into its log: it escapes what it is given. A file would not be
    taken out, and nobody would notice, if it came to be called otherwise than where it was put in."""
    plain = unquote(path)
    if quote(plain, safe=_KEPT) != path:
        raise LakeError(f"{path} was named by another tool, and cannot be taken out of the table without it")
    return plain
