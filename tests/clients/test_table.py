"""The committed table says what these tests test."""

from __future__ import annotations

from tests.clients.matrix import SECTIONS, Cell
from tools import client_table


def test_committed_table_is_in_line_with_the_tests() -> None:
    assert client_table.check() == [], "run python -m tools.client_table"


def test_rows_are_joined_only_where_every_client_answers_alike() -> None:
    section = SECTIONS[0]
    made = client_table.table(
        [
            Cell(section, "acks: 0", "aiokafka"),
            Cell(section, "acks: 1", "aiokafka"),
            Cell(section, "acks: all", "aiokafka"),
            Cell(section, "acks: all", "Java tools"),
        ]
    ).splitlines()
    assert made[3:5] == ["| acks: 0, 1 | – | – | ✓ | – |  |", "| acks: all | – | – | ✓ | – | ✓ |"]
