"""Rows of a node's life: from the command to the first record acknowledged, and the memory it keeps for itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import venv
from pathlib import Path
from typing import Any

from bench import frames, topics
from bench.cpu import private_mb
from bench.generator import replay
from bench.lab import HEAP, page_cache
from bench.row import Figures, Row, Run, at_most
from bench.tidelog_node import TidelogNode
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.testing.wire import Wire
from tools import apache
from tools.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
IDLE_S = 3.0
STARTS_WITHIN_S = 60.0


def clean_python(home: Path) -> str:
    """The interpreter of a new venv with this Tidelog and nothing that a developer adds."""
    place = home / "clean-venv"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["-c", str(ROOT / "constraints.txt"), str(ROOT)]
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        subprocess.run(command, check=True, env=environment, timeout=300)
    return str(python)


def _prepare(run: Run) -> None:
    if run.side.node == "tidelog":
        run.kept["python"] = clean_python(run.lab.home)


def _node(run: Run, directory: Path) -> Any:
    if run.side.node == "apache":
        kafka = apache.ApacheKafka(directory, heap=HEAP, silent=True)
        kafka.format()
        return kafka
    address = f"127.0.0.1:{free_port()}"
    return TidelogNode(directory, properties=page_cache(), python=run.kept["python"], listen=address)


def _life(run: Run) -> Figures:
    directory = run.lab.home / run.lab.fresh_name()
    node = _node(run, directory)
    started = time.monotonic()
    node.launch()
    try:
        topic_id = _first_record(node)
        start_s = time.monotonic() - started
        time.sleep(IDLE_S)
        idle_mb = private_mb(node.process.pid)
        made = frames.produce(topic_id, (0,), 1000)
        requests = max(1, run.bytes // (1000 * made.records_each))
        replay(node.bootstrap_servers, made, depth=5, seconds=max(run.seconds, 10), requests=requests)
        return {"start_s": start_s, "idle_mb": idle_mb, "loaded_mb": private_mb(node.process.pid)}
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)
        os.sync()


def _first_record(node: Any) -> bytes:
    """Connects, makes a topic and writes a record, each as soon as the broker lets it; the topic's id."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    topic_id = b""
    while True:
        try:
            topic_id = topic_id or topics.create(node.bootstrap_servers, "first")
            with Wire(node.bootstrap_servers, client_id="bench") as wire:
                wire.socket.sendall(frames.produce(topic_id, (0,), 100, count=1).data)
                answer = wire.receive(ProduceResponse, frames.PRODUCE_VERSION)
            if answer.responses[0].partition_responses[0].error_code == 0:
                return topic_id
        except (OSError, RuntimeError):  # not there yet, or not ready to lead
            if node.process.poll() is not None or time.monotonic() > deadline:
                raise
        time.sleep(0.002)


ROWS = (
    Row(
        name="life",
        title="a new node: start, and private memory",
        prepare=_prepare,
        measure=_life,
        shows=("start_s", "idle_mb", "loaded_mb"),
        targets=(at_most("start_s", 0.1, 0.05), at_most("idle_mb", 1 / 8), at_most("loaded_mb", 1 / 4)),
        seconds_per_gb=5.0,
        overhead_s=6.5,
        warm_ups_max=1,
    ),
)
