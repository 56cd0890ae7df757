"""The shared session does what the other tests count on."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def test_workers_run_the_python_of_the_tests_and_time_is_utc(spark: SparkSession) -> None:
    where = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert [os.path.realpath(one) for one in where] == [os.path.realpath(sys.executable)]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
