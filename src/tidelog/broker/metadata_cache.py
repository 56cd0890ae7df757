"""The answer to "all topics", encoded: clients ask for it again and again, and it changes only with the image."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from tidelog.metadata.image import MetadataImage

_ENTRIES_MAX: Final = 64


class MetadataCache:
    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._bodies: dict[Hashable, bytes] = {}

    def get(self, image: MetadataImage, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """The body for the key (version, address, flags), made once per image."""
        if image is not self._image or len(self._bodies) >= _ENTRIES_MAX:
            self._image = image
            self._bodies = {}
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = make()
        return body
