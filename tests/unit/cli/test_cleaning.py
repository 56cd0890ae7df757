"""What `tidelog topic describe --cleaning` reads from a page of metrics."""

from __future__ import annotations

from tidelog.cli.cleaning import Cleaning, read_page

PAGE = """# HELP tidelog_log_dirty_ratio Dirty part of a compacted log.
# TYPE tidelog_log_dirty_ratio gauge
tidelog_log_dirty_ratio{topic="c",partition="0"} 0.25
tidelog_log_dirty_ratio{topic="c",partition="1"} 0.5
tidelog_log_dirty_ratio{topic="cc",partition="0"} 0.75
tidelog_log_last_clean_timestamp_seconds{topic="c",partition="0"} 1700000000.5
tidelog_log_uncleanable{topic="c",partition="1"} 1
kafka_log_log_size{topic="c",partition="0"} 17
"""


def test_the_samples_of_the_topic_are_found() -> None:
    assert read_page(PAGE, "c") == {0: Cleaning(0.25, 1_700_000_000_500), 1: Cleaning(0.5, None, True)}
    assert read_page(PAGE, "d") == {}
