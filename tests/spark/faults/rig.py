"""A node, a generator, and a pipeline, all in processes of their own, on loopback.

The pipeline has an ingest flow for each format of tables, or a flow of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.clients.killable import Killable, killable
from tests.spark.faults.cluster import EXECUTOR, EXECUTOR_MIB, Standalone
from tests.spark.faults.driver import Driver
from tests.spark.faults.generator import Generator
from tests.spark.faults.processes import below, parents
from tests.spark.faults.speculation import HOSTS, Wins, settings
from tests.spark.jvm import java_options
from tidelog.client.topics import NewTopic, create_topics
from tidelog.spark.pipeline import load

TOPIC: Final = "orders"
FORMATS: Final = ("delta", "parquet", "iceberg")
PATIENCE_MS: Final = 5000
"""How long the pipeline's clients wait for a node that is away, before their flow fails and starts again."""
FIRST_SCHEMA: Final = "id BIGINT, at TIMESTAMP"
_FILE: Final = """\
name: faults
bootstrap.servers: {servers}
lake: lake
spark: {{{spark}}}
kafka: {{default.api.timeout.ms: {patience_ms}, request.timeout.ms: {patience_ms}}}
defaults:
  trigger: {trigger}
  maintenance: {{batches: 3, orphans: 60s}}
  restart: {{first: 500ms, most: 4s, give_up_after: 200}}
flows:
"""
_FLOW: Final = """\
  {name}:
    kind: ingest
    topics: {topic}
    format: {name}
    decode: {{wire: json, schema: "{schema}"}}
"""
_KINDS: Final = """\
  plain:
    kind: ingest
    topics: {topic}
    decode: {{wire: json, schema: "{schema}"}}
  judged:
    kind: ingest
    topics: {topic}
    decode: {{wire: json, schema: "{schema}"}}
    dead_letters: {{topic: {topic}.dead, rules: {{no_seventh: payload.id % 7 <> 0}}}}
  again:
    kind: ingest
    topics: {topic}
    max_records: 1000000  # other options make another source, which asks by itself how far the topic is
    decode: {{wire: json, schema: "{schema}"}}
  tens:
    kind: sql
    from: plain
    query: SELECT payload.id AS id, topic, partition, offset, timestamp FROM plain WHERE payload.id % 10 = 0
  minutes:
    kind: aggregate
    from: plain
    time: payload.at
    watermark: 10m
    window: {{tumbling: 1m}}
    measures: {{records: count, most: max(payload.id)}}
  once:
    kind: dedupe
    from: plain
    by: {{pair: payload.id div 2}}
    time: payload.at
    watermark: 1h
  near:
    kind: join
    left: plain
    right: again
    on: {{payload.id: "if(payload.id % {third} = 0, NULL, payload.id + {ahead})"}}
    time: payload.at
    within: {{before: 10s}}
    watermark: 10m
  counts:
    kind: view
    from: plain
    key: {{hundredth: payload.id % 100}}
    fold: {{records: count(payload.id), most: max(payload.id)}}
  back:
    kind: publish
    from: tens
    topic: {published}
    key: cast(id AS STRING)
    value: cast(id AS STRING)
"""
FLOWS: Final = ("formats", "kinds")
PUBLISHED: Final = "tens"
TENTH: Final = 10
"""What is published: records whose id this divides."""
JOINED: Final = "near"
AHEAD: Final = 5
"""What is joined: each record with the one so many ids before it, which is read from the same topic by another flow,"""
THIRD: Final = 3
"""unless this divides the id of the latter. So a record is joined on one side and may be unmatched on the other."""


@dataclass
class Rig:
    home: Path
    file: Path
    node: Killable
    generator: Generator
    driver: Driver
    standalone: Standalone | None
    wins: Wins

    def executors(self) -> list[int]:
        if self.standalone is not None:
            return self.standalone.executors()
        return below(self.driver.java(), EXECUTOR)

    def python_workers(self, executor: int | None = None) -> list[int]:
        """Those that tasks run in, of one executor or all; idle ones wait for the next task."""
        roots = [executor] if executor is not None else self.executors() or self.driver.java()
        daemons = set(below(roots, "pyspark.daemon"))  # they fork the workers, which keep their command line
        of = parents()
        return sorted(pid for pid in daemons if of.get(pid) in daemons)

    def evolve(self) -> str:
        """Producers write a field more from now on, and the next driver reads by the schema that has it."""
        before = schema_of(self.generator.version)
        self.generator.version += 1
        after = schema_of(self.generator.version)
        self.file.write_text(self.file.read_text().replace(f'"{before}"', f'"{after}"'))
        return after


def schema_of(version: int) -> str:
    return ", ".join([FIRST_SCHEMA, *(f"more_{number} STRING" for number in range(2, version + 1))])


def master_settings(kind: str, standalone: Standalone | None, events: Path) -> dict[str, str]:
    small = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), java_options())
    if kind == "local":
        return small
    memory = {"spark.executor.memory": f"{EXECUTOR_MIB}m", "spark.executor.cores": "1"}
    if standalone is not None:
        return {"spark.master": standalone.master, **memory, **small, **settings(events)}
    return {"spark.master": f"local-cluster[2,1,{EXECUTOR_MIB}]", **memory, **small}


def pipeline_text(servers: str, spark: dict[str, str], flows: str = "formats") -> str:
    settings = ", ".join(f'{name}: "{value}"' for name, value in spark.items())
    trigger = "300ms" if flows == "formats" else "2s"
    head = _FILE.format(servers=servers, spark=settings, patience_ms=PATIENCE_MS, trigger=trigger)
    if flows == "kinds":
        return head + _KINDS.format(topic=TOPIC, schema=schema_of(1), published=PUBLISHED, third=THIRD, ahead=AHEAD)
    return head + "".join(_FLOW.format(name=name, topic=TOPIC, schema=schema_of(1)) for name in FORMATS)


@contextmanager
def rig(
    home: Path, *, master: str, rate: int, flows: str = "formats", partitions: int = 2, say: Callable[[str], None]
) -> Iterator[Rig]:
    """Everything runs and every flow has landed something when this is entered."""
    with ExitStack() as stack:
        node = stack.enter_context(killable(home / "node"))
        _create_topic(node.bootstrap_servers, partitions)
        standalone = stack.enter_context(Standalone(home / "spark", HOSTS)) if master == "standalone" else None
        if standalone is not None:
            say(f"master and workers are up: {standalone.master}")
        file = home / "faults.yaml"
        events = home / "events"
        spark = master_settings(master, standalone, events)
        file.write_text(pipeline_text(node.bootstrap_servers, spark, flows))
        driver = Driver(file, load(file), home)
        stack.callback(driver.close)
        driver.start()
        generator = stack.enter_context(Generator(node.bootstrap_servers, TOPIC, rate))
        driver.wait_batches("no first batch")
        say("every flow has landed a batch")
        yield Rig(home, file, node, generator, driver, standalone, Wins(events))


def _create_topic(servers: str, partitions: int) -> None:
    from tests.spark.faults.admin import ask

    new = NewTopic(name=TOPIC, partitions=partitions, replication_factor=1)
    ask(servers, lambda cluster: create_topics(cluster, [new]))
