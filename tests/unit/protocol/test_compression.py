"""Every codec round trips, reads what others write, and never takes more memory than it was allowed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import codec as kafka_python

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.compression import CODEC_NAMES, Codec, compress, decompress

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
LIMIT = 1 << 20

contents = st.binary(max_size=300) | st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 200_000)).map(
    lambda pair: (pair[0] * (pair[1] // len(pair[0]) + 1))[: pair[1]]
)


@given(content=contents, codec=st.sampled_from(Codec))
@settings(max_examples=200)
def test_what_was_compressed_comes_back(content: bytes, codec: Codec) -> None:
    packed = compress(codec, content)
    assert bytes(decompress(codec, packed, LIMIT)) == content
    assert bytes(decompress(codec, memoryview(bytearray(packed)), LIMIT)) == content
    assert compress(codec, memoryview(bytearray(content))) == packed


@pytest.mark.parametrize("codec", PACKED)
def test_content_much_larger_than_the_first_guess(codec: Codec) -> None:
    """The target grows while the library says that it is full: each library says so in its own words."""
    for size in (65_535, 65_536, 65_537, 262_145, 5_000_000):
        assert bytes(decompress(codec, compress(codec, bytes(size)), size)) == bytes(size)


@pytest.mark.parametrize("codec", PACKED)
def test_one_byte_over_the_limit_is_refused(codec: Codec) -> None:
    for size in (1, 70_000, 300_000):
        packed = compress(codec, b"x" * size)
        assert len(decompress(codec, packed, size)) == size
        with pytest.raises(ProtocolError, match=f"larger than {size - 1} bytes"):
            decompress(codec, packed, size - 1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_level_is_obeyed(codec: Codec) -> None:
    content = b"".join(b"%d," % (number * number * 7919) for number in range(4000))
    fast, small = compress(codec, content, 1), compress(codec, content, 9)
    assert bytes(decompress(codec, fast, LIMIT)) == bytes(decompress(codec, small, LIMIT)) == content
    assert small != fast
    if codec is Codec.GZIP:
        assert compress(codec, content, -1) == compress(codec, content)


@pytest.mark.parametrize("codec", PACKED)
def test_every_cut_of_a_stream_is_an_error_never_less_content(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)) * 3 + bytes(30_000))
    for cut in range(len(packed)):
        if codec is Codec.SNAPPY and cut == len(XERIAL):
            continue  # a stream without a block is whole: nothing in xerial's frame tells
        with pytest.raises(ProtocolError):
            decompress(codec, packed[:cut], LIMIT)


@given(codec=st.sampled_from(PACKED), data=st.data())
@settings(max_examples=200)
def test_any_bytes_decompress_or_are_an_error(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, data.draw(contents)))
    for _ in range(data.draw(st.integers(0, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    damaged = data.draw(st.sampled_from((bytes(packed), data.draw(st.binary(max_size=64)))))
    try:
        found = decompress(codec, damaged, LIMIT)
    except ProtocolError:
        return
    assert len(found) <= LIMIT


def test_an_unknown_codec_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="compression 7 is unknown"):
        decompress(7, b"", LIMIT)


def test_names_are_kafkas() -> None:
    assert {name: Codec(number).name for name, number in CODEC_NAMES.items()} == {
        "none": "NONE",
        "uncompressed": "NONE",
        "gzip": "GZIP",
        "snappy": "SNAPPY",
        "lz4": "LZ4",
        "zstd": "ZSTD",
    }


# bombs

_BOMBS = """
import resource, sys
from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.compression import Codec, decompress

codec, limit = Codec(int(sys.argv[1])), 8 << 20
bomb = sys.stdin.buffer.read()
decompress(codec, bytes.fromhex(sys.argv[2]), limit)  # what the library needs at its first use
with open("/proc/self/statm") as file:
    in_use = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (64 << 20),) * 2)
try:
    decompress(codec, bomb, limit)
except ProtocolError as error:
    print(error)
"""


def _bomb(codec: Codec) -> bytes:
    if codec is Codec.SNAPPY:
        # The size is only claimed, in a block by itself and behind blocks that are in order.
        honest = bytes(cramjam.snappy.compress_raw(b"x"))
        lie = b"\xff\xff\xff\xff\x0f" + honest[1:]
        return XERIAL + b"".join(len(block).to_bytes(4, "big") + block for block in (honest, lie))
    library: Any = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec]
    member = bytes(library.compress(bytes(64 << 20)))
    return member * 16  # a gigabyte: concatenated streams are one stream


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures memory by /proc and an address space limit")
@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_does_not_go_off(codec: Codec) -> None:
    """A gigabyte of content under a limit of 8 MiB, in a process that may grow by 64 MiB."""
    warm = compress(codec, bytes(10_000)).hex()
    done = subprocess.run(
        [sys.executable, "-c", _BOMBS, str(int(codec)), warm], input=_bomb(codec), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"larger than" in done.stdout, done.stdout.decode()


def test_raw_snappy_lies_about_its_size() -> None:
    honest = bytes(cramjam.snappy.compress_raw(b"hello"))
    assert bytes(decompress(Codec.SNAPPY, honest, 5)) == b"hello"
    for lie in (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80", b"\x06"):
        with pytest.raises(ProtocolError):
            decompress(Codec.SNAPPY, lie + honest[1:], LIMIT)


# what others write


@pytest.mark.parametrize("codec", PACKED)
def test_streams_that_follow_each_other_are_one(codec: Codec) -> None:
    """Java's writers may end a stream and begin another; gzip, lz4 and zstd all allow it, and so do xerial's blocks."""
    first, second = compress(codec, b"a" * 100), compress(codec, b"b" * 70_000)
    joined = first + (second[16:] if codec is Codec.SNAPPY else second)
    assert bytes(decompress(codec, joined, LIMIT)) == b"a" * 100 + b"b" * 70_000


def test_snappy_is_written_in_xerials_blocks_of_32_kib() -> None:
    packed = compress(Codec.SNAPPY, bytes(70_000))
    assert packed.startswith(XERIAL)
    sizes, position = [], len(XERIAL)
    while position < len(packed):
        length = int.from_bytes(packed[position : position + 4], "big")
        block = packed[position + 4 : position + 4 + length]
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(block))))
        position += 4 + length
    assert sizes == [32_768, 32_768, 70_000 - 65_536]


def test_raw_snappy_as_librdkafka_writes_it_is_read() -> None:
    content = b"raw and without a frame" * 3000
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(content)), LIMIT)) == content


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        pytest.param(XERIAL[:12], "header", id="cut within the frame's header"),
        pytest.param(XERIAL + b"\x00\x00", "no length", id="half a length"),
        pytest.param(XERIAL + b"\xff\xff\xff\xff", "-1 bytes", id="negative length"),
        pytest.param(XERIAL + b"\x7f\xff\xff\xff" + bytes(9), "runs over", id="longer than the batch"),
        pytest.param(XERIAL + b"\x00\x00\x00\x00", "no size", id="an empty block"),
    ],
)
def test_broken_frames_of_snappy(packed: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decompress(Codec.SNAPPY, packed, LIMIT)


def test_gzip_as_kafka_python_writes_it() -> None:
    content = b"gzip from the standard library" * 1000
    assert bytes(decompress(Codec.GZIP, kafka_python.gzip_encode(content), LIMIT)) == content
    assert kafka_python.gzip_decode(compress(Codec.GZIP, content)) == content
