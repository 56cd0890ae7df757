"""Avro payloads, by fastavro."""
