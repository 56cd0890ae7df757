"""meta.properties: what is written, what Apache's variants of it say, and whom a directory turns away."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.log.errors import DirectoryMismatchError
from tidelog.log.meta_properties import MetaProperties, decode_meta

META = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 3, bytes(range(16)))
APACHES = b"""#
#Sun Nov 15 23:39:00 UTC 2026
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
directory.id=AAECAwQFBgcICQoLDA0ODw
node.id=3
version=1
"""


def test_what_is_written() -> None:
    assert META.encode() == (
        b"cluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\nnode.id=3\nversion=1\n"
    )


def test_a_file_of_apache_kafka_is_read() -> None:
    assert decode_meta(APACHES, "x") == META


@pytest.mark.parametrize(
    "change",
    [
        (b"=", b" = "),
        (b"=", b":"),
        (b"=", b" "),
        (b"\n", b"\r\n"),
        (b"#", b"!"),
        (b"node.id", b"  node.id"),
        (b"version=1", b"version=1\nunknown=7\n\n  # a remark"),
    ],
)
def test_javas_other_ways_to_write_the_same(change: tuple[bytes, bytes]) -> None:
    assert decode_meta(APACHES.replace(*change), "x") == META


def test_a_colon_that_java_escaped() -> None:
    assert decode_meta(APACHES.replace(b"MkU3OEVBNTcwNTJENDM2Qg", rb"a\:b\=c"), "x").cluster_id == "a:b=c"


@given(st.text("abcXYZ019-_", min_size=1), st.integers(0, 2**31 - 1), st.binary(min_size=16, max_size=16))
def test_round_trip(cluster_id: str, node_id: int, directory_id: bytes) -> None:
    meta = MetaProperties(cluster_id, node_id, directory_id)
    assert decode_meta(meta.encode(), "x") == meta


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ((b"version=1", b"version=0"), "data/meta.properties has version 0: only 1 can be read"),
        ((b"version=1", b""), "data/meta.properties has version none: only 1 can be read"),
        ((b"node.id=3", b""), "data/meta.properties does not tell node.id: format the directory again"),
        ((b"cluster.id", b"cluster"), "data/meta.properties does not tell cluster.id: format the directory again"),
        ((b"directory.id", b"directory"), "data/meta.properties does not tell directory.id: format the directory"),
        ((b"node.id=3", b"node.id=three"), "data/meta.properties cannot be read: "),
        ((b"ODw", b"ODw!!"), "data/meta.properties cannot be read: "),
    ],
)
def test_what_is_missing_or_wrong_is_named(change: tuple[bytes, bytes], sentence: str) -> None:
    with pytest.raises(DirectoryMismatchError, match="^" + re.escape(sentence)):
        decode_meta(APACHES.replace(*change), "data/meta.properties")


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(DirectoryMismatchError):
        decode_meta(data, "x")


def test_its_own_node_and_cluster_may_have_it() -> None:
    META.check("data", cluster_id="MkU3OEVBNTcwNTJENDM2Qg", node_id=3)
    META.check("data", cluster_id=None, node_id=3)


def test_another_node_is_told_what_to_do() -> None:
    with pytest.raises(DirectoryMismatchError) as refused:
        META.check("data", cluster_id=None, node_id=4)
    assert str(refused.value) == (
        "the data directory data belongs to node 3, but node.id is 4: set node.id=3 or choose another directory"
    )


def test_another_cluster_is_told_what_to_do() -> None:
    with pytest.raises(DirectoryMismatchError) as refused:
        META.check("data", cluster_id="other", node_id=3)
    assert str(refused.value) == (
        "the data directory data belongs to cluster MkU3OEVBNTcwNTJENDM2Qg, not to other: choose another directory"
    )
