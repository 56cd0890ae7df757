"""Spark imports every top-level module of this name in each session and registers its DefaultSource: format("tidelog").

It must stay light (nothing but pyspark is imported): every session with any Python data source pays for it.
"""

from tidelog.spark.source import TidelogSource as DefaultSource

__all__ = ["DefaultSource"]
