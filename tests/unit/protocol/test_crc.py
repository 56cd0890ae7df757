"""CRC-32C comes from the C module alone, and from the whole package where that is not to be found."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

from tidelog.protocol import crc

CHECK = (b"123456789", 0xE3069283)  # the check value of the catalogues of CRCs


def test_the_check_value() -> None:
    data, value = CHECK
    assert crc.crc32c(data) == value
    assert crc.crc32c(data[4:], crc.crc32c(data[:4])) == value


@pytest.mark.parametrize("name", ["crc32c", "crc32c._crc32c"])
def test_without_the_c_module_the_package_is_taken(name: str) -> None:
    loaded = crc.load(lambda wanted, path=None: None if wanted == name else PathFinder.find_spec(wanted, path))
    assert loaded.__name__ == "crc32c"
    data, value = CHECK
    assert loaded.crc32c(data) == value


def test_a_node_starts_without_what_the_package_asks_of_its_metadata() -> None:
    script = "import sys, tidelog.node.node; print('importlib.metadata' in sys.modules, 'email' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
