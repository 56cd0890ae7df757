"""Apache Kafka for comparison, from its published jars through Maven, in a cache outside the repository.

`apache_libs()` is None where Java or Maven is missing; callers then skip visibly.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.ports import free_port

VERSION = "4.3.1"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAw"
"""Of the directories that we let Apache format."""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tidelog.cache</groupId><artifactId>{name}</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>
"""


def cache_dir() -> Path:
    if named := os.environ.get("TIDELOG_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog"


_NO_OTHERS = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def _artifact(group: str, name: str, version: str, transitive: bool) -> str:
    tags = {"groupId": group, "artifactId": name, "version": version}
    named = "".join(f"<{tag}>{text}</{tag}>" for tag, text in tags.items())
    # Told here and not to the command: even what is not copied would have to be found.
    return f"<dependency>{named}{'' if transitive else _NO_OTHERS}</dependency>"


def why_not() -> str | None:
    """The reason why Apache Kafka cannot be run here, None when it can."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    return None


def fetch(name: str, *artifacts: tuple[str, str, str], transitive: bool = True) -> Path:
    """The directory with the jars of the artifacts (`transitive`: and all they depend on), fetched once."""
    home = cache_dir() / name
    libs = home / "libs"
    done = home / "complete"
    if done.exists():
        return libs
    home.mkdir(parents=True, exist_ok=True)
    part = home / f"libs.{os.getpid()}"
    pom = home / f"pom.{os.getpid()}.xml"
    dependencies = "".join(_artifact(*artifact, transitive) for artifact in artifacts)
    pom.write_text(_POM.format(name=name, dependencies=dependencies))
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    pom.unlink()
    if libs.exists():
        shutil.rmtree(part)
    else:
        part.rename(libs)
    done.touch()
    return libs


def apache_libs() -> Path | None:
    """The jars of Apache Kafka's broker and tools, None where they cannot be had."""
    if why_not() is not None:
        return None
    return fetch(
        f"apache-kafka-{VERSION}",
        ("org.apache.kafka", "kafka_2.13", VERSION),
        ("org.apache.kafka", "kafka-tools", VERSION),
        ("org.slf4j", "slf4j-nop", "1.7.36"),
    )


def _loud_libs() -> Path:
    """The jar that lets a broker say what goes wrong; the tools, whose output is read, stay silent."""
    return fetch("slf4j-simple-1.7.36", ("org.slf4j", "slf4j-simple", "1.7.36"), transitive=False)


def programs_libs() -> Path | None:
    """The jars of Kafka Streams and of Connect with its file connectors, None where they cannot be had."""
    if why_not() is not None:
        return None
    return fetch(
        f"apache-kafka-streams-connect-{VERSION}",
        ("org.apache.kafka", "kafka-streams", VERSION),
        ("org.apache.kafka", "connect-runtime", VERSION),
        ("org.apache.kafka", "connect-file", VERSION),
        ("org.slf4j", "slf4j-nop", "1.7.36"),
    )


def newest_clients_libs() -> Path | None:
    if why_not() is not None:
        return None
    return fetch("kafka-clients-4.4.0", ("org.apache.kafka", "kafka-clients", "4.4.0"))


def compiled(sources: Path, libs: Path) -> Path:
    """The classes of a directory of Java sources, compiled once into the cache."""
    files = sorted(sources.glob("*.java"))
    digest = hashlib.sha256(str(libs).encode())
    for file in files:
        digest.update(file.read_bytes())
    home = cache_dir() / "classes" / f"{sources.name}-{digest.hexdigest()[:12]}"
    if not home.exists():
        part = home.with_name(f"{home.name}.{os.getpid()}")
        command = ["javac", "-nowarn", "-d", str(part), "-cp", f"{libs}/*", *map(str, files)]
        subprocess.run(command, check=True, timeout=120)
        try:
            part.rename(home)
        except OSError:  # another process was faster
            shutil.rmtree(part)
    return home


def java(
    main_class: str,
    *arguments: str,
    heap: str = "256m",
    flags: tuple[str, ...] = (),
    libs: Path | None = None,
    sources: Path | None = None,
) -> list[str]:
    """The command line of one of Apache's own tools, or of a program of `sources`, with the jars of `libs`."""
    libs = libs or apache_libs()
    assert libs is not None, "ask apache_libs() first"
    path = f"{libs}/*" if sources is None else f"{compiled(sources, libs)}:{libs}/*"
    return [
        "java",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *flags,
        "-cp",
        path,
        main_class,
        *arguments,
    ]


def run_tool(main_class: str, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
    """Run one of Apache's tools; its output, standard error included. A non-zero exit code raises."""
    done = subprocess.run(
        java(main_class, *arguments),
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{main_class} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class ApacheKafka:
    """A single combined node of Apache Kafka on loopback; a context manager.

    `data` names its log.dirs, which may be those of a stopped Tidelog: only a new one is formatted. `standalone` is
    what Apache's own quick start does: kraft.version 1, the voters in the metadata log instead of the settings. A
    `silent` one says nothing of what goes wrong, which takes a twentieth from its start: for benches.
    """

    def __init__(
        self,
        directory: Path,
        *,
        heap: str = "1g",
        properties: Mapping[str, str] | None = None,
        data: Sequence[Path] | None = None,
        node_id: int = 1,
        standalone: bool = False,
        silent: bool = False,
    ) -> None:
        self.directory = directory
        self._silent = silent
        self.data = list(data or [directory / "logs"])
        self.node_id = node_id
        self.standalone = standalone
        self.heap = heap
        self.port = free_port()
        self.controller_port = free_port()
        self.properties = dict(properties or {})
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        return (self.directory / "server.out").read_text()

    def __enter__(self) -> ApacheKafka:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.format()
        self.launch()
        assert self.process is not None
        deadline = time.monotonic() + 90
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Apache Kafka did not start:\n{self.output[-10_000:]}")
            time.sleep(0.1)

    def format(self) -> None:
        config = self._write_config()
        if not (self.data[0] / "meta.properties").exists():
            extra = ["--standalone"] if self.standalone else []
            run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config), *extra)

    def launch(self) -> None:
        """Starts the process and waits for nothing."""
        self.log = open(self.directory / "server.out", "ab")  # noqa: SIM115 - closed with the process
        libs = f"{apache_libs()}/*"
        command = [
            "java",
            f"-Xms{self.heap}",
            f"-Xmx{self.heap}",
            "-XX:+UseG1GC",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            libs if self._silent else f"{_loud_libs()}/*:{libs}",
            "kafka.Kafka",
            str(self.directory / "server.properties"),
        ]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def stop(self) -> int | None:
        """The exit code, 143 when it was a clean stop; None when it was not running."""
        if self.process is None:
            return None
        self.process.terminate()
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.log.close()
        self.process = None
        return code

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _write_config(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        controller = f"127.0.0.1:{self.controller_port}"
        quorum = (
            {"controller.quorum.bootstrap.servers": controller}
            if self.standalone
            else {"controller.quorum.voters": f"{self.node_id}@{controller}"}
        )
        base = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            **quorum,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": ",".join(map(str, self.data)),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in (base | self.properties).items()))
        return path
