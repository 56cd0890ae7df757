"""A process that dies at any step of what it writes: the steps are counted, and one of them is its last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tidelog.spark.lake.writing import Files


class Died(BaseException):
    """Not an Exception: nothing between here and the test may take it for an error to handle."""


def _steps(format: str) -> list[tuple[Any, str]]:
    """Calls that change what the next process finds."""
    from deltalake import DeltaTable
    from pyiceberg.catalog.sql import SqlCatalog

    own: dict[str, list[tuple[Any, str]]] = {
        "parquet": [],
        "delta": [(DeltaTable, "create"), (DeltaTable, "create_write_transaction")],
        "iceberg": [(SqlCatalog, "create_namespace_if_not_exists"), (SqlCatalog, "commit_table")],
    }
    return [(os, "replace"), (os, "link"), (Files, "write"), (Files, "__exit__"), *own[format]]


@contextmanager
def death(monkeypatch: pytest.MonkeyPatch, format: str, at: int) -> Iterator[Callable[[], bool]]:
    """Dies before the at-th half of a call: every call counts twice, before it and after it."""
    moment = 0

    def count() -> None:
        nonlocal moment
        moment += 1
        if moment == at:
            raise Died

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            count()
            result = function(*arguments, **keywords)
            count()
            return result

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)  # a process that dies loses nothing that was written
        for owner, name in _steps(format):
            kept = owner.__dict__.get(name)
            if isinstance(kept, classmethod | staticmethod):
                patch.setattr(owner, name, staticmethod(watched(getattr(owner, name))))
            else:
                patch.setattr(owner, name, watched(getattr(owner, name)))
        yield lambda: moment < at
