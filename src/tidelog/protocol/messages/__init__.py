"""Typed shapes of every Kafka message and stored record; see tools/extract_schemas.py."""
