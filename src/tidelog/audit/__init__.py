"""Counts of producers and consumers for the audit, tier by tier (docs/audit.md): a service beside the broker, and small
helpers for applications. Knows neither Spark nor the broker's inside.

    notices         what is published to the audit topic
    stamps          the headers of a record
    counting        what one producer or consumer counts; pure
    confluent       for confluent-kafka; kafka_python for kafka-python
    lives           who has told what, and who has not; pure
    tiers           all notices together: balanced, off or unknown, by window; pure
    reading         the audit topic through the client core
"""
