"""JSON payloads with a JSON Schema, validated by jsonschema-rs."""
