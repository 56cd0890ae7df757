"""Payloads of records as columns: `payload`, and `payload_error` for what could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    wire: Literal["json", "confluent"]
    column: str = "value"
    schema: str | None = None
    registry: str | None = None
    subject: str | None = None
    format: Literal["avro", "json", "protobuf"] = "avro"
    mode: Literal["permissive", "failfast"] = "permissive"


def decoded(frame: DataFrame, decode: Decode | None) -> DataFrame:
    """With `payload` and `payload_error`; a broken payload is a row with an error, never a lost row."""
    if decode is None:
        return frame
    from pyspark.sql import functions as F

    if decode.wire == "confluent":
        from tidelog.spark.functions import from_confluent

        made = from_confluent(
            decode.column,
            decode.schema,
            registry=decode.registry,
            subject=None if decode.schema is not None else decode.subject,
            format=decode.format,
            mode=decode.mode,
        )
        if decode.mode == "failfast":
            return frame.withColumn("payload", made).withColumn("payload_error", F.lit(None).cast("string"))
        with_both = frame.withColumn("_decoded", made)
        return (
            with_both.withColumn("payload", F.col("_decoded.value"))
            .withColumn("payload_error", F.col("_decoded.error").cast("string"))
            .drop("_decoded")
        )
    return _decoded_json(frame, decode)


def _decoded_json(frame: DataFrame, decode: Decode) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    schema = StructType.fromDDL(decode.schema or "")
    text = F.col(decode.column).cast("string")
    if decode.mode == "failfast":
        made = F.from_json(text, schema, {"mode": "FAILFAST"})
        return frame.withColumn("payload", made).withColumn("payload_error", F.lit(None).cast("string"))
    broken = "_broken"
    with_broken = StructType([*schema.fields]).add(broken, StringType())
    parsed = F.from_json(text, with_broken, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": broken})
    whole = F.struct(*(F.col(f"_parsed.`{field.name}`") for field in schema.fields))
    is_broken = F.col(f"_parsed.{broken}").isNotNull()
    return (
        frame.withColumn("_parsed", parsed)
        .withColumn("payload", F.when(F.col(decode.column).isNotNull() & ~is_broken, whole))
        .withColumn("payload_error", F.when(is_broken, F.lit("not JSON of the given schema")))
        .drop("_parsed")
    )
