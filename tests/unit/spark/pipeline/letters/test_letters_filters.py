"""Which letters a filter means, and what is said of one that cannot be read."""

from __future__ import annotations

import pytest

pytest.importorskip("yaml")

from tidelog.protocol.batch import Record
from tidelog.spark.pipeline.letters import headers as H
from tidelog.spark.pipeline.letters.filters import FilterError, Wanted
from tidelog.spark.pipeline.letters.headers import Letter, block, letter_of

SAID = [
    (H.TOPIC, "orders"),
    (H.PARTITION, 2),
    (H.OFFSET, 41),
    (H.REASON, "known"),
    (H.MESSAGE, "it's a timeout"),
    (H.ATTEMPT, 3),
    (H.AT, 1000),
    (H.FLOW, "orders"),
    (H.QUERY, "q"),
    (H.NOT_BEFORE, None),
]


def letter() -> Letter:
    own = (("trace", b"abc"), ("empty", None), (H.ATTEMPT, b"77"))
    found = letter_of(Record(7, 5, b"key", b"value", (*own, *block(SAID))))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("where", "taken"),
    [
        ("topic = 'orders' AND partition = 2", True),
        ("offset >= 41 and offset < 42", True),
        ("offset > 41", False),
        ("attempt <> 3", False),
        ("message LIKE '%timeout'", True),
        ("message LIKE 'timeout%'", False),
        ("message = 'it''s a timeout'", True),
        ("key='key' AND value LIKE 'v_lue'", True),
        ("header.trace = 'abc'", True),
        ("header.empty = ''", False),
        ("header.none != 'abc'", False),
        ("batch = 1", False),
    ],
)
def test_comparisons(where: str, taken: bool) -> None:
    assert Wanted.of(where=where).takes(letter()) is taken


def test_reason_key_and_the_time_of_death() -> None:
    assert Wanted.of(reason="known", key="key", since_ms=1000).takes(letter())
    assert not Wanted.of(reason="decode").takes(letter())
    assert not Wanted.of(key="other").takes(letter())
    assert not Wanted.of(since_ms=1001).takes(letter())
    assert Wanted.of(reason="known", where="offset = 1").as_json() == {"reason": "known", "where": "offset = 1"}


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("", "cannot read ''; write FIELD OPERATOR VALUE"),
        ("offset", "cannot read 'offset'"),
        ("offset = 1 OR offset = 2", "expected AND before 'OR offset = 2'"),
        ("offset = 1 AND", "cannot read ''"),
        ("ofset = 1", "there is no field 'ofset'; did you mean 'offset'?"),
        ("offset LIKE '1%'", "offset is a number"),
        ("offset = '1'", "offset is a number"),
        ("topic = 'a", "cannot read"),
    ],
)
def test_what_cannot_be_read(where: str, error: str) -> None:
    with pytest.raises(FilterError) as caught:
        Wanted.of(where=where)
    assert str(caught.value).startswith(error)


def test_the_block_is_told_from_the_records_own_headers() -> None:
    found = letter()
    assert found.own == (("trace", b"abc"), ("empty", None), (H.ATTEMPT, b"77"))
    assert found.number(H.ATTEMPT) == 3
    assert found.origin == ("orders", 2, 41)
    assert found.is_of("orders", "q")
    assert not found.is_of("orders", "another")
    assert H.NOT_BEFORE not in found.said
    # A letter of a letter: the last block is ours, the other one is the record's.
    outer = letter_of(Record(8, 5, None, None, (*found.own, *block(SAID), *block([(H.TOPIC, "dead")]))))
    assert outer is not None
    assert len(outer.own) == 3 + len(block(SAID))
    assert (outer.text(H.TOPIC), outer.origin) == ("dead", None)
    assert letter_of(Record(9, 5, None, None, ((H.TOPIC, b"orders"),))) is None
