"""A port given to one is given to nobody else, and the system does not give it away either."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tools import ports

ASK = """
from tools import ports
ports._ROW = range({0}, {1})
print(ports.free_port(), ports.free_port())
"""


def row_of_four() -> range:
    """Four free ports in a row."""
    while True:
        first = ports.free_port()
        try:
            for port in range(first + 1, first + 4):
                with socket.socket(type=socket.SOCK_DGRAM) as token, socket.socket() as probe:
                    token.bind(("127.0.0.1", port))
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        os.close(ports._held.pop())
        return range(first, first + 4)


def test_processes_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of_four()
    monkeypatch.setattr(ports, "_ROW", row)
    mine = {ports.free_port(), ports.free_port()}
    ask = [sys.executable, "-c", ASK.format(row.start, row.stop)]
    theirs = {int(word) for word in subprocess.run(ask, capture_output=True, check=True, timeout=60).stdout.split()}
    assert mine | theirs == set(row)


def test_one_who_listens_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of_four()
    monkeypatch.setattr(ports, "_ROW", row[:2])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", row[0]))
        listener.listen()
        assert ports.free_port() == row[1]


def test_a_port_of_the_row_is_not_one_of_the_systems_own() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        assert listener.getsockname()[1] not in ports._ROW
