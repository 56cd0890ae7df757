"""The changes of a view as records of a topic: of each key that a batch has changed the row after it, or a tombstone.

Made of the table after the batch, which is the same however often the batch is repeated: only the last one ever is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.publishing import Publication, read_publication
from tidelog.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETED: Final = "_deleted"
VALUE: Final = "_published"


def read_changelog(section: Section, keys: list[str], kafka: Mapping[str, str]) -> Publication | None:
    given = section.has("publish")
    inner = section.section("publish")
    if not given:
        return None
    found = read_publication(inner, kafka)
    inner.done()
    if found.where is not None:
        inner.fault(("where",), "a view publishes every change: without some, the topic would be another view")
    key = f"`{keys[0]}`" if len(keys) == 1 else f"to_json(struct({', '.join(f'`{key}`' for key in keys)}))"
    return replace(found, key=found.key or key)


def sent(publication: Publication) -> Publication:
    """Of rows that `published` has made."""
    return replace(publication, value=VALUE)


def changed(changes: DataFrame, after: DataFrame, keys: list[str]) -> DataFrame:
    """The keys of the changes with their rows, if they have any now."""
    from pyspark.sql import functions as F

    names = {key: f"_key_{number}" for number, key in enumerate(keys)}
    touched = changes.select(*(F.col(f"`{key}`").alias(name) for key, name in names.items())).distinct()
    same = reduce(and_, (F.col(name).eqNullSafe(F.col(f"`{key}`")) for key, name in names.items()))
    return touched.join(after, same, "left").select(
        *(F.col(name).alias(key) for key, name in names.items()),
        *(F.col(f"`{column}`") for column in after.columns if column not in names),
        F.col("offset").isNull().alias(DELETED),
    )


def published(publication: Publication, rows: DataFrame) -> DataFrame:
    """With the value of the record; null is a tombstone."""
    from pyspark.sql import functions as F

    columns = ", ".join(f"`{column}`" for column in rows.columns if column != DELETED)
    value = F.expr(publication.value or f"to_json(struct({columns}))")
    return rows.withColumn(VALUE, F.when(~F.col(DELETED), value))
