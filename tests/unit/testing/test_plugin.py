"""The pytest plugin, run by a pytest inside this one."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

USES = """
    from tidelog.testing.wire import Wire
    from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse

    def partitions(broker, name):
        with Wire(broker.bootstrap_servers) as wire:
            found = wire.call(MetadataRequest(topics=None), 9, MetadataResponse)
        return {topic.name: len(topic.partitions) for topic in found.topics}[name]

    def test_topic(tidelog_broker, tidelog_topic):
        assert partitions(tidelog_broker, tidelog_topic) == 1

    def test_factory(tidelog_broker, tidelog_topic_factory):
        assert partitions(tidelog_broker, tidelog_topic_factory(partitions=3)) == 3
"""


def test_fixtures_give_a_node_and_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USES)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_settings_come_from_pytests_configuration(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntidelog_config =\n    num.partitions=4\n")
    pytester.makepyfile(
        USES
        + """
    def test_default(tidelog_broker, tidelog_topic_factory):
        assert partitions(tidelog_broker, tidelog_topic_factory(partitions=-1)) == 4
"""
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)


def test_the_nodes_log_is_shown_with_a_failure_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import logging

        def test_bad(tidelog_broker):
            logging.getLogger("tidelog.tests").warning("the node said this")
            raise AssertionError("broken")
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:logging")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*tidelog broker log*", "*the node said this*"])


def test_each_xdist_worker_has_a_node_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, pytest

        @pytest.mark.parametrize("number", range(4))
        def test_it(tidelog_broker, number, record_property):
            with open(os.environ["SEEN"], "a") as file:
                file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {tidelog_broker.bootstrap_servers}\\n")
        """
    )
    seen = pytester.path / "seen"
    pytester._monkeypatch.setenv("SEEN", str(seen))
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", "--dist", "load").assert_outcomes(passed=4)
    pairs = set(seen.read_text().splitlines())
    assert len(pairs) == len({pair.split()[0] for pair in pairs}) == len({pair.split()[1] for pair in pairs})
