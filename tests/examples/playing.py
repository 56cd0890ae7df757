"""Runs an example as a user does: a process, its output, its exit code; and what is in a topic afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

EXAMPLES = Path(__file__).parents[2] / "examples"


def play(name: str, bootstrap: str, *options: str) -> subprocess.CompletedProcess[str]:
    return _run(str(EXAMPLES / f"{name}.py"), "--bootstrap", bootstrap, *options)


def play_changed(name: str, change: str, bootstrap: str) -> subprocess.CompletedProcess[str]:
    """The example with something in it changed, so that what it tells cannot be true."""
    program = (
        f"import sys, {name}; {change}; sys.argv[1:] = ['--bootstrap', {bootstrap!r}]; {name}.tell({name}.play, '')"
    )
    return _run("-c", program, PYTHONPATH=str(EXAMPLES))


def _run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environ}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env=env)


def held(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DOES NOT HOLD" not in done.stdout
    assert done.stdout.endswith("\nAll of it held.\n")
    return done.stdout


def everything(bootstrap: str, topic: str, isolation: str) -> list[tuple[bytes, bytes]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "test", "isolation.level": isolation}
    consumer = Consumer(settings | {"enable.partition.eof": True})
    partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found = []
    while partitions:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            partitions.remove(message.partition())
        else:
            found.append((message.key(), message.value()))
    consumer.close()
    return found
