"""Proof of what a flow has published: its rows computed anew must be in the topic, each once, and no others of it.

The flow's records are told by their headers, those of batches that are not done yet too. What retention took from the
topic cannot be proved; of a compacted one every key must have a record, if its last one need not be a tombstone.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipeline.comparing import Difference, compare_rows
from tidelog.spark.pipeline.proof import Proof, UnprovableError
from tidelog.spark.pipeline.proving import require_repeatable
from tidelog.spark.pipeline.publishing import MARKS, Publication, client_settings, records
from tidelog.spark.pipeline.recomputing import Recomputed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.client.cluster import Cluster
    from tidelog.spark.link import Link

FAULTS: Final = ("unpublished", "too many")
LOOKS: Final = 60
PAUSE_S: Final = 0.5


def prove_published(anew: Recomputed, rows: DataFrame, publication: Publication) -> Proof:
    """`rows` are those that the flow had to publish."""
    expected = _alike(records(publication, rows, {}))
    require_repeatable(expected)
    gone, compacted = _look(anew, publication)
    found = _ours(anew, publication).drop("offset")
    difference = compare_rows(expected, found)
    if publication.delivery == "at_least_once":
        # Some may be there again: only what is there at all is compared.
        difference = compare_rows(expected.distinct(), found.distinct())
    if compacted and difference.missing:
        difference = _of_compacted(expected, found, difference)
    counts = {
        "to publish": difference.expected,
        "published": difference.found,
        "unpublished": difference.missing,
        "too many": difference.surplus,
    }
    found_all = Proof(counts=counts, faults=FAULTS, examples=difference.examples)
    if difference.is_none:
        return found_all
    if anew.is_changed:
        return Proof(counts=counts, unknown="the flow, or one that it reads, was changed since its first batch")
    if gone and difference.missing:
        unknown = f"the topic does not have all records any more ({'; '.join(gone)})"
        return Proof(counts=counts, faults=("too many",), examples=difference.examples, unknown=unknown)
    if anew.gone or anew.is_compacted():
        unknown = f"the log does not have all records any more ({'; '.join(anew.gone) or 'it was compacted'})"
        return Proof(counts=counts, faults=("unpublished",), examples=difference.examples, unknown=unknown)
    return found_all


def with_published(table: Proof, topic: Proof) -> Proof:
    """Of a flow with both."""
    return Proof(
        counts={**table.counts, **topic.counts},
        faults=(*table.faults, *topic.faults),
        examples=(*table.examples, *topic.examples),
        unknown=table.unknown or topic.unknown,
        remarks=(*table.remarks, *topic.remarks),
    )


def _alike(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    key = F.col("key") if "key" in frame.columns else F.lit(None)
    return frame.select(key.cast("binary").alias("key"), F.col("value").cast("binary").alias("value"), "headers")


def prove_changelog(anew: Recomputed, rows: DataFrame, publication: Publication) -> Proof:
    """Of a view: the last record of each key, if it is no tombstone, must be its row. `rows` are the view's."""
    from pyspark.sql import functions as F

    expected = _alike(records(publication, rows, {}))
    gone, _ = _look(anew, publication)
    last = F.max_by(F.struct("value", "headers"), "offset").alias("last")  # a key lies in one partition
    found = _ours(anew, publication).groupBy("key").agg(last).select("key", "last.value", "last.headers")
    difference = compare_rows(expected, found.where(F.col("value").isNotNull()))
    counts = {
        "published": difference.found,
        "unpublished": difference.missing,
        "too many": difference.surplus,
    }
    if gone and difference.missing:
        unknown = f"the topic does not have all records any more ({'; '.join(gone)})"
        return Proof(counts=counts, faults=("too many",), examples=difference.examples, unknown=unknown)
    return Proof(counts=counts, faults=FAULTS, examples=difference.examples)


def _ours(anew: Recomputed, publication: Publication) -> DataFrame:
    """The flow's records of batches that are done, without the headers that say so."""
    from pyspark.sql import functions as F

    options = {f"kafka.{name}": text for name, text in client_settings(publication).items()}
    options["kafka.bootstrap.servers"] = anew.pipeline.bootstrap_servers
    options |= {"subscribe": publication.topic, "includeHeaders": "true", "isolation": "read_committed"}
    frame = anew.spark.read.format("tidelog").options(**options).load()
    flow, query, batch = (F.get("headers", F.lit(number)) for number in range(len(MARKS)))
    is_ours = (flow["key"] == MARKS[0]) & (flow["value"].cast("string") == anew.flow.name)
    is_ours = is_ours & (query["key"] == MARKS[1]) & (query["value"].cast("string") == anew.query)
    is_done = batch["value"].cast("string").try_cast("long") <= anew.batch
    rest = F.slice("headers", len(MARKS) + 1, F.size("headers"))
    return frame.where(is_ours & is_done).select("key", "value", rest.alias("headers"), "offset")


def _look(anew: Recomputed, publication: Publication) -> tuple[list[str], bool]:
    """(what retention took, whether it is compacted). Waits until all that is there now can be read: a transaction of
    anybody hides what stands behind it."""
    from tidelog.spark.link import Link

    topic = publication.topic
    with Link({**client_settings(publication), "bootstrap.servers": anew.pipeline.bootstrap_servers}) as link:
        if not link.existing([topic]):
            raise UnprovableError(f"there is no topic {topic}")
        parts = [(topic, number) for number in link.partitions([topic])[topic]]
        ends = link.latest(parts, "read_uncommitted")
        for look in range(LOOKS):
            if look:
                threading.Event().wait(PAUSE_S)
            stable = link.latest(parts)
            if all(stable[at] >= end for at, end in ends.items()):
                break
        else:
            raise UnprovableError(f"a transaction is open in the topic {topic}, and hides what stands behind it")
        begins = link.earliest(parts)
        gone = [f"{topic}-{number} begins at {begins[topic, number]}" for _, number in parts if begins[topic, number]]
        return gone, _is_compacted(link, topic)


def _is_compacted(link: Link, topic: str) -> bool:
    from tidelog.client.configs import ConfigEntry, Resource, ResourceType, describe_configs

    async def ask(cluster: Cluster) -> list[ConfigEntry]:
        return await describe_configs(cluster, Resource(ResourceType.TOPIC, topic), ["cleanup.policy"])

    return any("compact" in (entry.value or "") for entry in link.ask(ask))


def _of_compacted(expected: DataFrame, found: DataFrame, whole: Difference) -> Difference:
    """The cleaner leaves a key's last record, and takes a tombstone in the end."""
    from pyspark.sql import functions as F

    keys = expected.groupBy("key").agg(F.bool_or(F.col("value").isNull()).alias("may_be_gone"))
    lost = keys.where(~F.col("may_be_gone")).join(found.select("key").distinct(), "key", "left_anti")
    examples = tuple(f"unpublished: the key {row['key']!r}" for row in lost.limit(5).collect())
    return Difference(
        expected=whole.expected,
        found=whole.found,
        missing=lost.count(),
        surplus=whole.surplus,
        examples=(*(text for text in whole.examples if text.startswith("surplus")), *examples),
    )
