"""Spark's home has all that its programs need, and not the zip that each Python process would compile anew."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tidelog.spark.home import provide_home


def test_a_home_without_the_zip() -> None:
    environment: dict[str, str] = {}
    home = Path(provide_home(environment))
    assert environment == {"SPARK_HOME": str(home)}
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert not list(home.rglob("pyspark.zip"))
    assert provide_home(environment) == str(home)  # and not another one


def test_a_home_that_was_chosen_stays() -> None:
    environment = {"SPARK_HOME": "/opt/spark"}
    assert provide_home(environment) == "/opt/spark"
    assert environment == {"SPARK_HOME": "/opt/spark"}
