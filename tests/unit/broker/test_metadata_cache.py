from __future__ import annotations

from tidelog.broker.metadata_cache import MetadataCache
from tidelog.metadata.image import MetadataImage


def test_a_body_is_made_once_per_image_and_key() -> None:
    cache = MetadataCache()
    image = MetadataImage()
    made: list[bytes] = []

    def make(body: bytes) -> bytes:
        made.append(body)
        return body

    assert cache.get(image, 1, lambda: make(b"a")) == b"a"
    assert cache.get(image, 1, lambda: make(b"b")) == b"a"
    assert cache.get(image, 2, lambda: make(b"c")) == b"c"
    assert cache.get(MetadataImage(offset=5), 1, lambda: make(b"d")) == b"d"
    assert made == [b"a", b"c", b"d"]


def test_addresses_that_clients_dial_cannot_grow_it_without_end() -> None:
    cache = MetadataCache()
    image = MetadataImage()
    for number in range(1000):
        cache.get(image, number, lambda: b"x")
    assert len(cache._bodies) <= 64
