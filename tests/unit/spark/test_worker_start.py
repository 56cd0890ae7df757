"""A worker that answers Spark first: what it says on the wire, when it says nothing, and which starts it is for."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidelog.spark.worker_python import worker_python
from tidelog.spark.worker_start import MODULE, connect

SECRET = "näive"  # its length is that of its bytes
ASKED = len(SECRET.encode()).to_bytes(4, "big") + SECRET.encode()


@contextmanager
def spark(answer: bytes) -> Iterator[tuple[dict[str, str], list[bytes]]]:
    """The driver's side: reads the secret, answers, and sends what follows."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                heard.append(peer.recv(len(ASKED), socket.MSG_WAITALL))
                peer.sendall(answer)
                heard.append(peer.recv(100))

        thread = threading.Thread(target=serve)
        thread.start()
        port = str(server.getsockname()[1])
        yield {"PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": SECRET}, heard
        thread.join()


def test_it_authenticates_and_leaves_the_rest_of_the_connection_to_others() -> None:
    with spark(b"\0\0\0\2ok" + b"first request") as (environment, heard):
        made = connect(environment)
        assert made is not None
        file, connection = made
        assert file.read(13) == b"first request"
        file.write(b"pid")
        file.flush()
        file.close()
        connection.close()
    assert heard == [ASKED, b"pid"]


def test_a_driver_that_does_not_agree_is_left_to_pyspark() -> None:
    with spark(b"\0\0\0\3err") as (environment, heard):
        assert connect(environment) is None
    assert heard == [ASKED, b""]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"PYTHON_WORKER_FACTORY_SOCK_PATH": "/somewhere"},
        {"PYTHON_WORKER_FACTORY_PORT": "1", "PYTHON_WORKER_FACTORY_SECRET": "x", "SPARK_PREFER_IPV6": "True"},
        {"PYTHON_WORKER_FACTORY_PORT": "no port", "PYTHON_WORKER_FACTORY_SECRET": "x"},
    ],
)
def test_where_spark_is_spoken_to_in_another_way_nothing_is_done(environment: dict[str, str]) -> None:
    assert connect(environment) is None


def test_the_program_is_this_python_and_only_a_streams_process_starts_otherwise() -> None:
    program = worker_python()
    told = subprocess.run(
        [program, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == sys.executable
    pytest.importorskip("pyspark")
    # Without a driver to connect to both end with pyspark's own complaint; which way it came is in the traceback.
    started = subprocess.run([program, "-m", MODULE], capture_output=True, text=True, check=False, env={})
    assert "worker_start" in started.stderr
    assert "CANNOT_OPEN_SOCKET" in started.stderr or "local_connect_and_auth" in started.stderr
