"""Payloads in the Confluent wire format: registry, framing, and a reader and a writer per format.

Knows Arrow, not Spark.
"""
