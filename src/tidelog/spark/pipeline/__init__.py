"""A pipeline: one file of flows that carry topics into lake tables, each a streaming query with its own checkpoint.

`load` reads the file; `run`, `status` and `check` are in modules of their own, which import Spark when they are used.
"""

from tidelog.spark.pipeline.faults import Fault, PipelineError
from tidelog.spark.pipeline.load import load
from tidelog.spark.pipeline.model import Pipeline
from tidelog.spark.pipeline.python import aggregate, dedupe, ingest, join, publish, sql, view
from tidelog.spark.pipeline.views.as_of import as_of

__all__ = [
    "Fault",
    "Pipeline",
    "PipelineError",
    "aggregate",
    "as_of",
    "dedupe",
    "ingest",
    "join",
    "load",
    "publish",
    "sql",
    "view",
]
