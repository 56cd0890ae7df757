"""The bench's file and table: rows merge, medians and verdicts are right, a page gets the text between its marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import results, table
from bench.__main__ import main
from bench.catalogue import ROWS, chosen
from bench.node import Settings, estimate_s
from bench.row import at_least, at_most


def row(cells: dict[str, list[dict[str, float]]], **more: Any) -> dict[str, Any]:
    facts = {"title": "t", "commit": "abc", "when": "2026-01-01", "client": "C", "runs": 3, "size": "1 GB"}
    return facts | {"quick": False, "errors": {}, "cells": cells} | more


def ping(*ours: float, apache: float = 1.0) -> dict[str, Any]:
    return row({"tidelog": [{"p50_ms": value} for value in ours], "apache": [{"p50_ms": apache}]})


def test_a_later_run_of_some_rows_replaces_them_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "node.json"
    results.merge(path, {"cores": 2}, {"ping": ping(1.0), "produce-1k": row({})})
    merged = results.merge(path, {"cores": 4}, {"ping": ping(2.0)})
    assert json.loads(path.read_text()) == merged
    assert merged["machine"] == {"cores": 4}
    assert list(merged["rows"]) == ["ping", "produce-1k"]
    assert merged["rows"]["ping"] == ping(2.0)
    assert [file.name for file in path.parent.iterdir()] == ["node.json"]


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"format": 0}')
    with pytest.raises(SystemExit, match="another version"):
        results.read(path)


def test_the_median_and_the_spread() -> None:
    found = results.summary(ping(1.0, 5.0, 2.0), "p50_ms", "tidelog")
    assert found == (2.0, 1.0)
    assert results.summary(ping(1.0), "p50_ms", "tidelog", "5") is None
    assert results.summary(ping(1.0), "p99_ms", "tidelog") is None


@pytest.mark.parametrize(
    ("ratio", "target", "said"),
    [
        (1.3, at_least("records_per_s", 1.0, 1.3), "aim met"),
        (1.29, at_least("records_per_s", 1.0, 1.3), "met"),
        (0.8, at_least("records_per_s", 1.0, 1.3), "**missed** by 20 %"),
        (0.5, at_most("p99_ms", 1.0, 0.5), "aim met"),
        (1.0, at_most("p99_ms", 1.0, 0.5), "met"),
        (1.2, at_most("p99_ms", 1.0, 0.5), "**missed** by 20 %"),
        (0.1, at_most("idle_mb", 0.125), "met"),
        (0.6, at_least("records_per_s", None, 0.7), "reported"),
        (0.7, at_least("records_per_s", None, 0.7), "aim met"),
    ],
)
def test_what_is_said_of_a_ratio(ratio: float, target: Any, said: str) -> None:
    assert table.verdict(ratio, target) == said


def test_the_table_compares_medians_and_shows_every_figure() -> None:
    text = table.render({"machine": {"cores": 2}, "rows": {"ping": ping(0.5, 0.6, 0.4, apache=1.0)}})
    line = next(line for line in text.splitlines() if "p50 ms" in line and "≤" in line)
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["0.50", "1.00", "0.50", "≤ 0.9", "≤ 0.7", "aim met"]
    assert "| tidelog |   0.50 | ± 20 % |" in text
    assert "quick" not in text


def test_what_failed_or_was_quick_is_said() -> None:
    found = row({}, errors={"apache": "RuntimeError: no"}, quick=True)
    text = table.render({"machine": {}, "rows": {"ping": found}})
    assert "apache: failed: RuntimeError: no" in text
    assert "quick run" in text
    assert "Apache Kafka was not measured" in text


def test_a_page_is_filled_between_its_marks_and_can_be_filled_again(tmp_path: Path) -> None:
    file, page = tmp_path / "node.json", tmp_path / "page.md"
    results.merge(file, {"cores": 2}, {"ping": ping(1.0)})
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    for _ in range(2):
        assert main(["table", str(file), "--into", str(page)]) == 0
        text = page.read_text()
        assert text.startswith(f"before\n{table.BEGIN}\n\n")
        assert text.endswith(f"\n\n{table.END}\nafter\n")
        assert "old" not in text
        assert text.count("single-record ping, acks=1: p50 ms") == 1
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="lacks the marks"):
        table.write_into(page, results.read(file))


def test_the_page_of_the_docs_has_the_marks() -> None:
    text = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    assert text.count(table.BEGIN) == text.count(table.END) == 1
    assert all(f"`{row.name}`" in text for row in ROWS)


def test_rows_are_chosen_by_name_or_beginning() -> None:
    assert [row.name for row in chosen("ping,produce-1k")] == ["ping", "produce-1k"]
    assert [row.name for row in chosen("produce")] == ["produce-100", "produce-1k", "produce-10k"]
    assert len(chosen(None)) == len({row.name for row in ROWS}) == len(ROWS)
    with pytest.raises(SystemExit, match="there is no row nothing"):
        chosen("nothing")


def test_every_figure_that_is_shown_or_aimed_at_has_a_unit() -> None:
    for row in ROWS:
        assert {*row.shows, *(target.metric for target in row.targets)} <= set(table.UNITS)
        assert all(target.point in row.points for target in row.targets)


def test_the_whole_bench_fits_into_an_hour_and_the_rows_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(estimate_s(row, len(row.sides), Settings()) for row in ROWS) < 3600
    assert main(["node", "--list", "--rows", "ping"]) == 0
    assert "single-record ping" in capsys.readouterr().out
