"""Ids, error types, limits and ports. Standard library only."""
