"""Dead letters as an outlet: coordinates from headers, and only of the flow that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from tidelog.client.fetching import AbortedTransaction
from tidelog.protocol.batch import TRANSACTIONAL, RecordInput, build_batch
from tidelog.spark.audit.letters import EXCEPTION, FLOW, OFFSET, PARTITION, REASON, TIMESTAMP, TOPIC, Letters
from tidelog.spark.link import Link
from tidelog.spark.pump import Chunk

Headers = list[tuple[str, bytes | None]]


class LetterLink:
    """The topic `dead`, a chunk for each batch."""

    def __init__(self, *held: list[Headers], aborted: int = 99) -> None:
        self._held = held
        self._aborted = aborted

    def existing(self, topics: Any) -> dict[str, list[int]]:
        return {"dead": [0]} if "dead" in set(topics) else {}

    def earliest(self, places: Any) -> dict[Any, int]:
        return dict.fromkeys(places, 0)

    def latest(self, places: Any, isolation: str) -> dict[Any, int]:
        assert isolation == "read_committed"
        return dict.fromkeys(places, sum(map(len, self._held)))

    def fetch(self, topic: str, partition: int, start: int, end: int, *_: Any, **__: Any) -> Iterator[Chunk]:
        offset = 0
        for number, letters in enumerate(self._held):
            records = [RecordInput(b"k", b"v", 7, tuple(headers)) for headers in letters]
            data = build_batch(records, base_offset=offset, attributes=TRANSACTIONAL, producer_id=number)
            aborted = (AbortedTransaction(number, offset),) if number == self._aborted else ()
            offset += len(letters)
            if offset > start:
                yield Chunk(memoryview(data), aborted, offset, 0)


def letter(offset: int, flow: str = "orders", **more: bytes) -> Headers:
    place = {TOPIC: b"in", PARTITION: b"2", OFFSET: str(offset).encode(), FLOW: flow.encode()}
    return [*place.items(), *((name.replace("_", "."), text) for name, text in more.items())]


def found(link: LetterLink, **options: Any) -> list[tuple[Any, ...]]:
    letters = Letters(cast(Link, link), "dead", "orders", **options)
    return [tuple(row.values()) for batch in letters.rows() for row in batch.to_pylist()]


def test_coordinates_are_those_of_the_record_that_the_letter_was() -> None:
    link = LetterLink([letter(5), letter(6, "payments")], [letter(7), []])
    assert [row[:3] for row in found(link)] == [("in", 2, 5), ("in", 2, 7)]
    assert [row[:3] for row in found(link, starts={("dead", 0): 2})] == [("in", 2, 7)]


def test_what_was_aborted_is_not_there() -> None:
    assert [row[2] for row in found(LetterLink([letter(5)], [letter(6)], [letter(7)], aborted=1))] == [5, 7]


def test_the_time_is_that_of_the_record_if_the_letter_has_it() -> None:
    rows = found(LetterLink([letter(1, tidelog_timestamp=b"1500"), letter(2)]))
    assert [None if row[3] is None else row[3].timestamp() for row in rows] == [1.5, None]
    assert TIMESTAMP == "tidelog.timestamp"


def test_a_letter_that_does_not_say_where_it_comes_from_is_left_out() -> None:
    def but(name: str, value: bytes | None) -> Headers:
        return [(key, value if key == name else text) for key, text in letter(1)]

    wrong = [but(OFFSET, b"x"), but(OFFSET, b"-1"), but(OFFSET, b"9" * 30), but(PARTITION, None), but(TOPIC, None)]
    wrong += [
        but(PARTITION, b"3000000000"),
        but(FLOW, b"\xff"),
        [(key, text) for key, text in letter(1) if key != TOPIC],
    ]
    assert found(LetterLink([*wrong, letter(4)])) == [("in", 2, 4, None)]
    # Of headers that come twice, the last one counts, as Kafka's clients say.
    assert [row[2] for row in found(LetterLink([[*letter(1), (OFFSET, b"8")]]))] == [8]


def test_a_topic_that_is_not_there_has_no_rows() -> None:
    assert list(Letters(cast(Link, LetterLink()), "none", "orders").rows()) == []
    assert list(Letters(cast(Link, LetterLink()), "dead", "orders").rows()) == []


def test_letters_are_counted_by_their_reason() -> None:
    both: Headers = [(REASON, b"not JSON"), (EXCEPTION, b"ValueError")]
    link = LetterLink(
        [[*letter(1), *both], [*letter(2), (EXCEPTION, b"KeyError")], letter(3), [*letter(4, "payments"), *both]],
        [[*letter(5), *both], [*letter(6), (REASON, b"caf\xe9")]],
    )
    reasons = Letters(cast(Link, link), "dead", "orders").reasons()
    assert reasons == {"not JSON": 2, "KeyError": 1, "no reason given": 1, "caf\ufffd": 1}
