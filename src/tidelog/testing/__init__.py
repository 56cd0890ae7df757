"""A broker for tests: `with Broker() as b: b.bootstrap_servers`. The pytest plugin beside it gives the same as a
fixture."""

from tidelog.testing.broker import Broker

__all__ = ["Broker"]
