"""The same in Python: `ingest(...)`, `sql(...)` and so on, one for each kind, take the keys of the file as arguments.

What they make is a draft; `Pipeline.of` reads all drafts with the reader that files go through, so both are checked
alike. A draft remembers the line it was made on, for the errors. `from` is a word of Python: write `from_`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from tidelog.spark.pipeline.faults import Fault, Path, PipelineError
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.read import read
from tidelog.spark.pipeline.tree import Planter, Text, Value


@dataclass(frozen=True, slots=True)
class Draft:
    """A flow as it was written, not yet checked."""

    options: Mapping[str, object]
    line: int


def ingest(**options: object) -> Draft:
    return _draft("ingest", options)


def sql(query: str, **options: object) -> Draft:
    return _draft("sql", {"query": query, **options})


def aggregate(**options: object) -> Draft:
    return _draft("aggregate", options)


def dedupe(**options: object) -> Draft:
    return _draft("dedupe", options)


def join(**options: object) -> Draft:
    return _draft("join", options)


def publish(**options: object) -> Draft:
    return _draft("publish", options)


def view(**options: object) -> Draft:
    return _draft("view", options)


def _draft(kind: str, options: Mapping[str, object]) -> Draft:
    return Draft({"kind": kind, **options}, sys._getframe(2).f_lineno)


def pipeline_of(options: Mapping[str, object], base: FilePath | None = None, source: str = "the pipeline") -> Pipeline:
    """Relative paths are meant from the folder of the Python file that is loaded, else from the current one."""
    renamed = {("bootstrap.servers" if name == "bootstrap_servers" else name): value for name, value in options.items()}
    planter = Planter(os.environ)
    tree = _Python(planter).plant(renamed, ())
    return read(tree, planter.faults, base or _loading[-1][0] if _loading else FilePath.cwd(), _source(source))


_loading: list[tuple[FilePath, str]] = []  # the file that is executed now


def _source(source: str) -> str:
    return _loading[-1][1] if _loading else source


def load_python(file: FilePath, content: bytes) -> Pipeline:
    names: dict[str, Any] = {"__name__": "tidelog_pipeline", "__file__": str(file)}
    _loading.append((file.absolute().parent, str(file)))
    try:
        exec(compile(content, str(file), "exec"), names)
    except PipelineError:
        raise
    except SyntaxError as error:
        raise PipelineError([Fault((), f"not Python: {error.msg}", error.lineno)], str(file)) from None
    except Exception as error:
        raise PipelineError([_raised(error, file)], str(file)) from error
    finally:
        _loading.pop()
    pipeline = names.get("pipeline")
    if not isinstance(pipeline, Pipeline):
        raise PipelineError([Fault((), "must leave a Pipeline by the name `pipeline`")], str(file))
    return pipeline


def _raised(error: Exception, file: FilePath) -> Fault:
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return Fault((), f"{type(error).__name__}: {error}", line)


class _Python:
    def __init__(self, planter: Planter) -> None:
        self._planter = planter
        self._line: int | None = None

    def plant(self, value: object, path: Path) -> Value:
        if isinstance(value, Draft):
            self._line = value.line
            options = {name.removesuffix("_"): inner for name, inner in value.options.items()}
            planted = self.plant(options, path)
            self._line = None
            return planted
        line = self._line
        if isinstance(value, Mapping):
            entries = [(str(key), inner, line) for key, inner in value.items()]
            return self._planter.keys(entries, line, path, self.plant)
        if isinstance(value, list | tuple):
            return self._planter.items(value, line, path, self.plant)
        if value is None:
            return Text("", "", line, null=True)
        if isinstance(value, bool):
            return Text(str(value).lower(), str(value).lower(), line)
        if isinstance(value, str | int | FilePath):
            return self._planter.text(str(value), line, path)
        self._planter.faults.append(Fault(path, f"{type(value).__name__} is no value for a key", line))
        return Text("", "", line, null=True)
