"""A Python process for which Spark waits 10 s, on its way: it answers first and imports then.

For each stream of a Python source Spark's driver starts a process that must connect back and authenticate within 10 s,
which cannot be set. It does so after it has imported pyspark, numpy and pyarrow: half a second on a machine that is
idle, more than 10 s on one that is not, and then the query fails. Here the connection is made and authenticated with
nothing imported but this, and handed to pyspark's own module when that asks for it.

    python -m tidelog.spark.worker_start -m pyspark.sql.streaming.python_streaming_source_runner
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

MODULE: Final = "pyspark.sql.streaming.python_streaming_source_runner"
_LOOPBACK: Final = "127.0.0.1"


def connect(environment: Mapping[str, str]) -> tuple[Any, Any] | None:
    """(file, socket), as pyspark's own `local_connect_and_auth` gives them; None where Spark is to be spoken to in
    another way, or does not agree: then pyspark's comes, and says what is wrong."""
    port, secret = environment.get("PYTHON_WORKER_FACTORY_PORT"), environment.get("PYTHON_WORKER_FACTORY_SECRET")
    if not port or not secret or environment.get("SPARK_PREFER_IPV6", "").lower() == "true":
        return None
    try:
        connection = socket.create_connection((_LOOPBACK, int(port)), timeout=60)
        file = connection.makefile("rwb", 65536)
        word = secret.encode()
        file.write(len(word).to_bytes(4, "big") + word)
        file.flush()
        size = int.from_bytes(file.read(4), "big")
        if file.read(size) == b"ok":
            return file, connection
        connection.close()
    except (OSError, ValueError):
        pass
    return None


def main(module: str) -> None:
    made = connect(os.environ)
    if made is not None:
        from pyspark import worker_util

        worker_util.local_connect_and_auth = lambda _where, _secret: made
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[-1])
