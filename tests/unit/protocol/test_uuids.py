from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID, random_uuid, uuid_from_text, uuid_to_text


def test_the_texts_that_kafka_shows() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


@given(st.binary(min_size=16, max_size=16))
def test_text_and_bytes_are_the_same_uuid(value: bytes) -> None:
    text = uuid_to_text(value)
    assert len(text) == 22
    assert uuid_from_text(text) == value


@pytest.mark.parametrize(
    "text", ["", "AAAA", "A" * 21, "A" * 23, "A" * 21 + "+", "A" * 21 + "é", "A" * 20 + "==", "A" * 21 + "!"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a uuid"):
        uuid_from_text(text)


def test_bytes_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes, not 4"):
        uuid_to_text(b"four")


def test_random_uuids_are_version_4_repeatable_and_never_look_like_an_option() -> None:
    values = [random_uuid(Random(seed)) for seed in range(500)]
    assert values == [random_uuid(Random(seed)) for seed in range(500)]
    assert len(set(values)) == 500
    assert all(value[6] >> 4 == 4 and value[8] >> 6 == 2 for value in values)
    assert not any(uuid_to_text(value).startswith("-") for value in values)
