from __future__ import annotations

import pytest

from tidelog.protocol.compression import Codec, compress, decompress


@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_lz4_blocks_stand_alone(size: int) -> None:
    """Java's reader refuses frames whose blocks refer to each other: bit 5 of the flags says that they do not."""
    content = bytes(range(256)) * (size // 256 + 1)
    frame = compress(Codec.LZ4, bytearray(content))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20
    assert bytes(decompress(Codec.LZ4, frame, len(content))) == content
