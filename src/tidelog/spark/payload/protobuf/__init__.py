"""Protobuf payloads: .proto text to descriptors without protoc, and messages between them and Arrow."""
