"""Bad options end a query before any job starts, with a message that names them."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.sourcing import Log
from tidelog.testing import Broker


def test_bad_options_are_refused_before_any_job(spark: SparkSession, broker: Broker) -> None:
    log = Log(broker.bootstrap_servers)
    spark.sparkContext.setJobGroup("bad-options", "none of these may start a job")
    for options, says in [
        ({"subscribe": "x", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "x", "failOnDataLoss": "perhaps"}, "failOnDataLoss=perhaps: expected true or false"),
        (
            {"subscribe": "x", "kafka__sasl.mechanism": "PLAIN"},
            "kafka.sasl.mechanism has no effect with kafka.security.protocol=PLAINTEXT",
        ),
        ({}, "exactly one of subscribe, subscribePattern, assign"),
        ({"subscribe": "nowhere"}, "topic nowhere"),
        ({"subscribe": "x", "startingOffsets": "latest"}, "startingOffsets=latest reads nothing in a batch query"),
    ]:
        with pytest.raises(PySparkException, match=says):
            log.reader(spark, **options).load().collect()
    with pytest.raises(PySparkException, match="the columns of the source tidelog are fixed"):
        log.reader(spark, subscribe="x").schema("a int").load().collect()
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("bad-options")) == []
