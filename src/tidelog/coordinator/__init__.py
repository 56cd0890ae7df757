"""Coordinators: one state machine per partition of an internal topic, and the runtime that makes them durable."""
