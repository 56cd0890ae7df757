"""Lake tables (Delta, Parquet, Iceberg) that a streaming query writes to exactly once. See docs/lake.md."""

from tidelog.spark.lake.errors import DamagedError, FilesLostError, LakeError, SchemaError
from tidelog.spark.lake.table import FORMATS, Appended, Description, LakeTable, Merged, Replaced, open_table, query_id

__all__ = [
    "FORMATS",
    "Appended",
    "DamagedError",
    "Description",
    "FilesLostError",
    "LakeError",
    "LakeTable",
    "Merged",
    "Replaced",
    "SchemaError",
    "open_table",
    "query_id",
]
