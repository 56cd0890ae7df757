"""What the examples share: a broker, topics of their own, lines to read, and a verdict that is the exit code."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent


class Story:
    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder  # for tables and checkpoints of a pipeline
        self.holds = True

    def act(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def say(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            print(f"  {line}".rstrip(), flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        cells = [[str(cell) for cell in row] for row in (columns, *rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            self.say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))

    def expect(self, holds: bool, text: str) -> None:
        """What must be so. One that is not makes the exit code 1; the story is told to its end all the same."""
        self.holds = self.holds and holds
        self.say(f"{'holds' if holds else 'DOES NOT HOLD'}: {text}")

    def topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """A new topic. One that is there already may be somebody else's, so it is not touched."""
        new = NewTopic(name, partitions, config={key.replace("_", "."): value for key, value in config.items()})
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        try:
            admin.create_topics([new])[name].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                print(f"there is a topic {name!r} already; if it is from an earlier run of this example:")
                print(f"  tidelog topic delete {name} -b {self.bootstrap}")
                sys.exit(2)
            raise

    def tidelog(self, *command: str) -> str:
        """A tidelog command, as it would be typed, and what it prints."""
        self.say(f"$ tidelog {' '.join(command)} -b {self.bootstrap}")
        full = [sys.executable, "-m", "tidelog", *command, "-b", self.bootstrap]
        told = subprocess.run(full, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
        self.say(told)
        return told

    def pipeline(self, name: str) -> None:
        """Run the pipeline of NAME.yaml on what is in its topics now."""
        file = self.pipeline_file(name)
        self.act(f"$ tidelog pipeline run {file.name} --once")
        command = [sys.executable, "-m", "tidelog", "pipeline", "run", file.name, "--once"]
        with subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr
            for line in running.stderr:
                self.say(line.replace(f"{self.folder}/", ""))
        if running.returncode:
            sys.exit(f"the pipeline failed; --dir keeps its files: what Spark printed is in .tidelog/{name}/spark.log")

    def pipeline_file(self, name: str) -> Path:
        """A copy of NAME.yaml in the story's folder, for its broker."""
        file = self.folder / f"{name}.yaml"
        file.write_text((HERE / file.name).read_text().replace("127.0.0.1:9092", self.bootstrap))
        return file

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Every row of a Delta table in the lake. Not by to_pyarrow_table(): a process that ends soon after such a
        scan may abort in Arrow's threads (apache/arrow#39862)."""
        from deltalake import DeltaTable
        from pyarrow.parquet import ParquetFile

        files = DeltaTable(self.folder / "lake" / table).file_uris()
        return [row for file in files for row in ParquetFile(file).read(use_threads=False).to_pylist()]


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> Iterator[Message]:
    """Every record that is in a topic now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",  # a name is needed; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,  # the end is told after this time
            "isolation.level": isolation,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    unread = set(partitions)
    while unread:
        message = consumer.poll(30)
        if message is None:
            raise TimeoutError(f"nothing more of {topic} within 30 s")
        if message.error() is None:
            yield message
        elif message.error().code() == KafkaError._PARTITION_EOF:
            unread.discard(message.partition())
        else:
            raise KafkaException(message.error())
    consumer.close()


def tell(play: Callable[[Story], None], about: str | None) -> None:
    """Play it on the broker that --bootstrap names, or on one of its own, and exit with the verdict."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that runs (default: one of its own)")
    parser.add_argument("--dir", type=Path, help="a new folder for the tables of a pipeline (default: a temporary one)")
    args = parser.parse_args()
    if args.dir:
        args.dir.mkdir(parents=True)
    with nullcontext(args.dir) if args.dir else TemporaryDirectory() as folder, broker(args.bootstrap) as bootstrap:
        story = Story(bootstrap, Path(folder))
        play(story)
        story.act("All of it held." if story.holds else "Not all of it held.")
    sys.exit(0 if story.holds else 1)


@contextmanager
def broker(given: str | None) -> Iterator[str]:
    if given:
        try:
            AdminClient({"bootstrap.servers": given, "log_level": 0}).list_topics(timeout=5)
        except KafkaException as error:
            sys.exit(f"no broker answers on {given}: {error.args[0].str()}")
        yield given
        return
    from tidelog.testing import Broker

    with Broker(process=True) as own:
        yield own.bootstrap_servers
