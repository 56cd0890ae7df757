"""Names of topics: Kafka's rules, one by one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.topic_names import INTERNAL_TOPICS, collides, complaint_about_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "-", "_", "a" * 249, "__consumer_offsets", ".hidden"])
def test_names_that_are_allowed(name: str) -> None:
    assert complaint_about_name(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, "249"),
        ("a b", "other than ASCII"),
        ("a/b", "other than ASCII"),
        ("a\n", "other than ASCII"),
        ("ü", "other than ASCII"),
        ("٣", "other than ASCII"),
        ("a\0", "other than ASCII"),
    ],
)
def test_names_that_are_not(name: str, reason: str) -> None:
    complaint = complaint_about_name(name)
    assert complaint is not None
    assert complaint.startswith("Topic name is invalid: ") and reason in complaint


@given(st.text(max_size=300))
def test_an_allowed_name_is_safe_as_a_directory(name: str) -> None:
    if complaint_about_name(name) is None:
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) and name not in (".", "..")


def test_dots_and_underscores_are_one_in_metric_names() -> None:
    assert collides("a.b", "a_b") and collides("a_b", "a.b")
    assert not collides("a.b", "a.b")
    assert not collides("a.b", "a-b")


def test_internal_topics_have_legal_names() -> None:
    assert all(complaint_about_name(name) is None for name in INTERNAL_TOPICS)
    assert "__consumer_offsets" in INTERNAL_TOPICS
