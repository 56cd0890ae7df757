"""What `tidelog pipeline init` writes: a pipeline that runs against a local node as it stands."""

from __future__ import annotations

from typing import Final

TOPIC: Final = "orders"
RECORD: Final = '{"id": 1, "country": "nl", "amount": 120.5, "ordered_at": "2026-11-16T10:00:00Z"}'

EXAMPLE: Final = """\
# A pipeline: topics into lake tables, exactly once.
#   tidelog pipeline run @FILE@       runs it (Ctrl-C ends it after the current batches)
#   tidelog pipeline status @FILE@    shows it, while it runs and after
#   tidelog pipeline check @FILE@     proves that what is in the topics is in the tables
#   tidelog pipeline report @FILE@    writes what it did as a page with plots
#
# Durations are 500ms, 10s, 5m, 1h30m, 7d; sizes 512KiB, 128MiB. Secrets come from the environment: ${env:NAME}.
# Relative paths are meant from this file's folder.

name: @NAME@
bootstrap.servers: @SERVERS@
lake: ./lake                    # each flow's table is a folder in it, by the flow's name
work: ./.tidelog/@NAME@         # checkpoints and the state that `status` shows; they belong to the tables

# Settings of the Kafka client, for all flows:
# kafka:
#   security.protocol: SASL_SSL
#   sasl.mechanism: PLAIN
#   sasl.username: pipeline
#   sasl.password: ${env:KAFKA_PASSWORD}

# Any of Spark's settings:
spark:
  spark.sql.shuffle.partitions: 2

# Where producers and consumers publish what they count (tidelog.audit), for `check`:
# audit:
#   topic: tidelog-audit
#   window: 10m

# What holds for each flow that does not say otherwise:
defaults:
  format: delta                 # delta, parquet or iceberg
  trigger: 5s                   # how often a batch begins; `once`: all that is there, then the flow ends
  maintenance:
    batches: 100                # small files are merged and orphans removed after so many batches; 0: never
    # every: 1h                 # and after so long
    target: 128MiB              # files up to this size are merged
    orphans: 7d                 # files without a commit are removed at this age
  restart:
    first: 1s                   # a flow that fails starts again from its checkpoint, after 1s, 2s, 4s ...
    most: 1m
    give_up_after: 10           # failures in a row; the other flows go on

flows:
  # Records as they are, with topic, partition, offset, timestamp, key, value and event_date.
  orders:
    kind: ingest
    topics: [orders]            # or pattern: orders-.*
    starting: earliest          # where a new checkpoint begins: earliest or latest
    decode:                     # adds the columns payload and payload_error
      wire: json                # json, or confluent for Confluent's wire format with a registry
      schema: "id BIGINT, country STRING, amount DOUBLE, ordered_at TIMESTAMP"
    event_time: payload.ordered_at   # event_date is made of it; where it is null, of the record's timestamp

  # A query over other flows by name.
  large_orders:
    kind: sql
    from: orders
    query: >
      SELECT topic, partition, offset, payload.id, payload.country, payload.amount, event_date
      FROM orders WHERE payload.amount >= 100
    partition_by: [event_date]

  # Measures by window of event time. What comes after its window was closed goes to per_minute_late.
  per_minute:
    kind: aggregate
    from: orders
    time: payload.ordered_at
    watermark: 10m              # how late a record may be
    window: {tumbling: 1m}      # or {sliding: 10m, every: 1m}, or {session: 5m}
    by: [payload.country]
    measures:                   # count sum min max avg first last count_distinct approx_count_distinct
      orders: count
      amount: sum(payload.amount)
      largest: max(payload.amount)
"""


def example(name: str, servers: str, file: str) -> str:
    return EXAMPLE.replace("@NAME@", name).replace("@SERVERS@", servers).replace("@FILE@", file)
