"""Which rows of a batch are good, dead, to be retried, or not due yet. Columns in, columns out; nothing is written.

    arrived     records of the flow's topics as they are; letters of its retry topic as the records that they were
    judged      what becomes of them, with all that their letters will say

The same columns describe a record that waits, so what waits is judged again like what arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.kinds.kind import PlanError
from tidelog.spark.pipeline.letters import headers as H
from tidelog.spark.pipeline.letters.options import DECODE, FOREIGN, DeadLetters

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ANSI: Final = "spark.sql.ansi.enabled"
RECORD: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
KEPT: Final = (*RECORD, "_attempt", "_redriven", "_not_before", "_foreign")
"""What must be known of a record to judge it."""
OUTCOME: Final = "_outcome"
GOOD, DEAD, RETRY, WAITING = "good", "dead", "retry", "waiting"
REASON: Final = "_reason"
_SAID: Final = (
    *((H.FLOW, "string"), (H.QUERY, "string"), (H.TOPIC, "string"), (H.PARTITION, "int"), (H.OFFSET, "bigint")),
    *((H.ATTEMPT, "int"), (H.REDRIVEN, "int"), (H.NOT_BEFORE, "bigint")),
    *((H.TIMESTAMP, "bigint"), (H.TIMESTAMP_TYPE, "int")),
)


def arrived(frame: DataFrame, letters: DeadLetters, flow: str, query: str) -> DataFrame:
    """KEPT columns. Letters of other flows and checkpoints are left out, and so are wake records."""
    from pyspark.sql import functions as F

    mark = F.expr(f"array_position(reverse(transform(headers, h -> h.key)), '{H.MARK}')")
    from_retry = F.col("topic") == letters.retry_topic
    # Counted from the end: 0 where there is no block.
    rows = frame.withColumn("_block", F.when(from_retry, F.coalesce(mark, F.lit(0))).otherwise(0).cast("int"))
    said = {name: _said(name, kind) for name, kind in _SAID}
    is_known = said[H.TOPIC].isNotNull() & said[H.PARTITION].isNotNull() & said[H.OFFSET].isNotNull()
    is_mine = (F.col("_block") > 0) & (said[H.FLOW] == flow) & (said[H.QUERY] == query) & is_known
    rows = rows.withColumn("_mine", F.coalesce(is_mine, F.lit(False)))

    def was(name: str, then: Column) -> Column:
        return F.when(F.col("_mine"), then).otherwise(F.col(name)).alias(name)

    return rows.where((F.col("_block") == 0) | F.col("_mine")).select(
        "key",
        "value",
        was("topic", said[H.TOPIC]),
        was("partition", said[H.PARTITION]),
        was("offset", said[H.OFFSET]),
        was("timestamp", F.timestamp_millis(said[H.TIMESTAMP])),
        was("timestampType", said[H.TIMESTAMP_TYPE]),
        was("headers", F.expr("slice(headers, 1, size(headers) - _block)")),
        F.when(F.col("_mine"), said[H.ATTEMPT]).otherwise(0).alias("_attempt"),
        F.when(F.col("_mine"), said[H.REDRIVEN]).otherwise(0).alias("_redriven"),
        F.when(F.col("_mine"), said[H.NOT_BEFORE]).alias("_not_before"),
        (from_retry & ~F.col("_mine")).alias("_foreign"),
    )


def _said(name: str, kind: str) -> Column:
    from pyspark.sql import functions as F

    block = "slice(headers, size(headers) - _block + 1, _block)"
    # The first of that name: any number of headers, of any names, must not stop the query.
    value = f"get(filter({block}, h -> h.key = '{name}'), 0).value"
    return F.expr(f"CASE WHEN _block > 0 THEN try_cast(cast({value} AS STRING) AS {kind}) END")


def judged(rows: DataFrame, letters: DeadLetters, flow: str, decodes: str | None, now_ms: int) -> DataFrame:
    """With OUTCOME, REASON and what a letter says. `decodes`: the column that is decoded, if any is.

    Rows must have `payload_error` where something is decoded, and the views that conditions ask must be there."""
    from pyspark.sql import functions as F

    rules = (*letters.rules, *letters.retry_rules)
    view = f"_letters_{flow}"
    rows.createOrReplaceTempView(view)
    # Null is not true. The conditions stand in the projection by themselves: they may hold subqueries.
    kept = [f"coalesce(cast(({condition}) AS BOOLEAN), false) AS _rule_{n}" for n, (_, condition) in enumerate(rules)]
    asked = rows.sparkSession.sql(f"SELECT {', '.join(['*', *kept])} FROM `{view}` AS `{flow}`")
    waits = F.coalesce(F.col("_not_before") > now_ms, F.lit(False))
    reason = F.when(waits, F.lit(None)).when(F.col("_foreign"), FOREIGN)
    if decodes is not None:
        reason = reason.when(F.col("payload_error").isNotNull(), DECODE)
    message = F.when(F.col(REASON) == FOREIGN, "a record of the retry topic that says nothing of where it is from")
    if decodes is not None:
        message = message.when(F.col(REASON) == DECODE, F.col("payload_error"))
    for n, (name, condition) in enumerate(rules):
        reason = reason.when(~F.col(f"_rule_{n}"), name)
        message = message.when(F.col(REASON) == name, f"breaks the rule {name}: {condition}")
    retriable = F.col(REASON).isin([name for name, _ in letters.retry_rules]) if letters.retry_rules else F.lit(False)
    again = retriable & (F.col("_attempt") < len(letters.delays_ms))
    outcome = F.when(waits, WAITING).when(F.col(REASON).isNull(), GOOD).when(again, RETRY).otherwise(DEAD)
    return (
        asked.withColumn(REASON, reason)
        .withColumn("_message", message)
        .withColumn("_stage", _stage(decodes))
        .withColumn("_at", F.lit(now_ms).cast("bigint"))
        .withColumn("_delay", _delay(letters))
        .withColumn(OUTCOME, outcome)
        .drop(*(f"_rule_{n}" for n in range(len(rules))))
    )


def _stage(decodes: str | None) -> Column:
    """In Connect's words."""
    from pyspark.sql import functions as F

    converter = "KEY_CONVERTER" if decodes == "key" else "VALUE_CONVERTER"
    return F.when(F.col(REASON) == DECODE, converter).when(F.col(REASON).isNotNull(), "TRANSFORMATION")


def _delay(letters: DeadLetters) -> Column:
    """What the next attempt waits; null where there is none."""
    from pyspark.sql import functions as F

    delays = F.array(*(F.lit(ms).cast("bigint") for ms in letters.delays_ms)) if letters.delays_ms else None
    return F.lit(None).cast("bigint") if delays is None else F.get(delays, F.col("_attempt"))


def letters_of(rows: DataFrame, letters: DeadLetters, flow: str, query: str, batch: int) -> DataFrame:
    """The rows that are dead or to be retried, as the sink takes them: the record as it was, with the block."""
    from pyspark.sql import functions as F

    retries = F.col(OUTCOME) == RETRY
    said: list[tuple[str, Column]] = [
        (H.MARK, F.lit(H.VERSION)),
        (H.TOPIC, F.col("topic")),
        (H.PARTITION, F.col("partition")),
        (H.OFFSET, F.col("offset")),
        (H.CONNECTOR, F.lit(flow)),
        (H.STAGE, F.col("_stage")),
        (H.CLASS, F.lit("tidelog.spark.pipeline.ingest")),
        (H.EXCEPTION, F.when(F.col(REASON) == DECODE, "DecodeError").otherwise("RuleError")),
        (H.MESSAGE, F.col("_message")),
        (H.FLOW, F.lit(flow)),
        (H.QUERY, F.lit(query)),
        (H.BATCH, F.lit(batch)),
        (H.REASON, F.col(REASON)),
        (H.ATTEMPT, F.when(retries, F.col("_attempt") + 1).otherwise(F.col("_attempt"))),
        (H.NOT_BEFORE, F.when(retries, F.col("_at") + F.col("_delay"))),
        (H.AT, F.col("_at")),
        (H.REDRIVEN, F.col("_redriven")),
        (H.TIMESTAMP, F.unix_millis("timestamp")),
        (H.TIMESTAMP_TYPE, F.col("timestampType")),
    ]
    pairs = [F.struct(F.lit(n).alias("key"), v.cast("string").cast("binary").alias("value")) for n, v in said]
    block = F.filter(F.array(*pairs), lambda header: header["value"].isNotNull())
    own = F.coalesce(F.col("headers"), F.expr("CAST(array() AS array<struct<key:string,value:binary>>)"))
    return rows.where(F.col(OUTCOME).isin(DEAD, RETRY)).select(
        "key",
        "value",
        F.when(retries, letters.retry_topic).otherwise(letters.topic).alias("topic"),
        F.concat(own, block).alias("headers"),
        "timestamp",
    )


def unbroken(rows: DataFrame, letters: DeadLetters, *, decodes: bool) -> DataFrame:
    """Those that other flows read: decoded, and no rule broken. Retry rules are not asked: they may pass later."""
    from pyspark.sql import functions as F

    kept = rows.where(F.col("payload_error").isNull()) if decodes else rows
    with without_errors(rows.sparkSession):
        for _, condition in letters.rules:
            kept = kept.where(F.expr(f"coalesce(cast(({condition}) AS BOOLEAN), false)"))
    return kept


def check_rules(frame: DataFrame, letters: DeadLetters) -> None:
    """PlanError for a condition that does not fit the columns. Those that ask tables are analysed with their batch."""
    from pyspark.errors import PySparkException

    for name, condition in (*letters.rules, *(() if letters.lookups else letters.retry_rules)):
        try:
            frame.selectExpr(f"cast(({condition}) AS BOOLEAN)")
        except PySparkException as error:
            raise PlanError(f"the rule {name!r}: {str(error).strip().splitlines()[0][:400]}") from None


@contextmanager
def without_errors(spark: SparkSession) -> Iterator[None]:
    """Conditions are asked without ANSI's errors: a cast that fails is null, and breaks the rule of its row only."""
    before = spark.conf.get(ANSI)
    spark.conf.set(ANSI, "false")
    try:
        yield
    finally:
        spark.conf.set(ANSI, str(before))
