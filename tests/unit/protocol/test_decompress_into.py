"""Decompressing into room that is there: it fits or it does not, and nothing is written behind it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.compression import Codec, compress, decompress_into

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
CONTENTS = st.binary(max_size=300) | st.integers(1, 5).map(lambda number: b"tide " * 20_000 * number)


@given(content=CONTENTS, codec=st.sampled_from(CODECS), more=st.integers(-3, 3), before=st.integers(0, 5))
def test_what_fits_is_there_and_what_does_not_is_told(content: bytes, codec: Codec, more: int, before: int) -> None:
    """One byte more than the content has is room enough."""
    size = max(len(content) + more, 0)
    room = bytearray(b"\xee" * (before + size + 10))
    written = decompress_into(codec, compress(codec, content), memoryview(room)[before : before + size])
    assert written == (len(content) if len(content) < size else None)
    assert room[:before] == b"\xee" * before and room[before + size :] == b"\xee" * 10
    if written is not None:
        assert room[before : before + written] == content


def test_raw_snappy_and_a_stream_without_blocks() -> None:
    import cramjam

    room = memoryview(bytearray(100))
    assert decompress_into(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw" * 9)), room) == 27
    assert room[:27] == b"raw" * 9
    assert decompress_into(Codec.SNAPPY, compress(Codec.SNAPPY, b""), room) == 0


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_an_error(codec: Codec) -> None:
    whole = compress(codec, b"tide and time " * 50)
    with pytest.raises(ProtocolError):
        decompress_into(codec, whole[: len(whole) // 2], memoryview(bytearray(5000)))
    with pytest.raises(ProtocolError):
        decompress_into(codec, b"\xff" * 40, memoryview(bytearray(5000)))


def test_an_unknown_compression_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="compression 7 is unknown"):
        decompress_into(7, b"x", memoryview(bytearray(10)))
