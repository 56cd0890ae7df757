"""Spark on the log: data source, payload functions, lake tables, pipeline and audit (extra: tidelog[spark])."""
