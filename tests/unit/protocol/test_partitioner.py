from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from tidelog.protocol.partitioner import murmur2, partition_for_key, to_positive
from tools.apache import apache_libs

KEYS = [b"", b"a", b"21", b"abc", b"foobar", "Grüße".encode(), bytes(range(256)), b"\xff" * 7]
_JAVA = """
public class Murmur {
    public static void main(String[] args) {
        for (String hex : args) {
            byte[] key = java.util.HexFormat.of().parseHex(hex.substring(1));
            int hash = org.apache.kafka.common.utils.Utils.murmur2(key);
            System.out.println(hash + " " + org.apache.kafka.common.utils.Utils.toPositive(hash) % 7);
        }
    }
}
"""


def signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_known_hashes(key: bytes, expected: int) -> None:
    assert signed(murmur2(key)) == expected


@given(st.binary(max_size=70))
def test_kafka_python_agrees(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF
    assert murmur2(memoryview(key)) == murmur2(bytearray(key)) == murmur2(key)


def test_the_sign_bit_is_cleared_not_the_number_negated() -> None:
    assert to_positive(0xFFFFFFFF) == 0x7FFFFFFF
    assert to_positive(0x80000000) == 0


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_a_partition_is_always_one_of_them(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions


@pytest.mark.java
def test_java_agrees(tmp_path: Path) -> None:
    libs = apache_libs()
    if libs is None:
        pytest.skip("Apache Kafka's jars are not at hand")
    source = tmp_path / "Murmur.java"
    source.write_text(_JAVA)
    command = ["java", "-cp", f"{libs}/*", str(source), *(f"x{key.hex()}" for key in KEYS)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [f"{signed(murmur2(key))} {partition_for_key(key, 7)}" for key in KEYS]
