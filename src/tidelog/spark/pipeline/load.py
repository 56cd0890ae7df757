"""A pipeline from its file: YAML, or Python that leaves a `pipeline`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tidelog.spark.pipeline.faults import Fault, PipelineError
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.read import read


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> Pipeline:
    file = Path(path)
    variables = os.environ if environ is None else environ
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PipelineError([Fault((), f"cannot be read: {error.strerror}")], str(file)) from None
    if file.suffix == ".py":
        from tidelog.spark.pipeline.python import load_python

        return load_python(file, content)
    return load_text(content, file.absolute().parent, str(file), variables)


def load_text(content: str | bytes, base: Path, source: str, environ: Mapping[str, str]) -> Pipeline:
    from tidelog.spark.pipeline.yaml_tree import plant_yaml

    tree, faults = plant_yaml(content, environ, source)
    return read(tree, faults, base, source)
