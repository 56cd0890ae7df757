"""A Spark session on this machine, set up so that nothing but `pip install tidelog[spark]` is needed.

Who has a session (a cluster, a notebook service) uses that one: the data source registers itself in any.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from tidelog.spark.home import provide_home
from tidelog.spark.java import provide_java
from tidelog.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"


def local_session(app: str = "tidelog", cores: int = 2, **conf: str) -> SparkSession:
    """The session of this process, started when there is none: `local_session(**{"spark.ui.enabled": "true"})`."""
    provide_java()
    provide_home()
    # Workers would take the first python3 of PATH, which need not be one that has tidelog.
    if not os.environ.get("PYSPARK_PYTHON"):
        # Workers of a cluster may be elsewhere, where only what is installed is found.
        is_local = conf.get("spark.master", "local").startswith("local")
        os.environ["PYSPARK_PYTHON"] = worker_python() if is_local and os.name != "nt" else sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    for key, value in {**_settings(cores), **conf}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(conf.get("spark.log.level", "ERROR"))
    return session


def _settings(cores: int) -> dict[str, str]:
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Without it filters on partition, offset and timestamp are applied after everything was read.
        "spark.sql.python.filterPushdown.enabled": "true",
    }
