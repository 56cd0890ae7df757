"""`./dev bench payloads`, in small: its table is whole."""

from __future__ import annotations

import pytest

from bench.__main__ import main


def test_every_format_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["payloads", "--rows", "20", "--seconds", "0"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["avro", "avro,", "json", "protobuf"]
    assert all(float(figure.replace(",", "")) > 0 for row in rows for figure in row[-2:])
