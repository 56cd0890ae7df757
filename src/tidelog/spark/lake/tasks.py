"""DataFrame.mapInArrow for environments without pandas, which it asks for and does not use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: Any
) -> Any:
    from pyspark.errors import PySparkImportError

    try:
        return frame.mapInArrow(function, schema)
    except PySparkImportError:
        return _without_pandas(frame, function, schema)


def _without_pandas(frame: DataFrame, function: Callable[..., Any], schema: Any) -> Any:
    """The same steps but for the check (PySpark 4.2 and 4.3)."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
