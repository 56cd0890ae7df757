"""`./dev bench node`: every chosen row, on both brokers in turn, warmed up, and written down as it goes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import generator, java_load, results, table
from bench.cpu import stolen_s
from bench.lab import HEAP, SYNC_MODE, Lab, sync_mode_is_known
from bench.row import Figures, Row, Run, Side, key_of
from tools import apache

WARM_UP_SHARE, WARM_UP_SHARE_BY_SECONDS = 0.5, 0.25
"""A warm-up round is half as large as a measured one, a quarter as long where runs are given by their length."""
CALM_CORES_MAX = 0.1
"""What a virtual machine's host may take of it during a run; above, all sides run again, as often as there are runs."""
FAILURES = (RuntimeError, OSError, subprocess.SubprocessError, ValueError)


@dataclass(frozen=True)
class Settings:
    runs: int = 5
    warm_ups: int = 2
    bytes: int = 1_000_000_000
    seconds: float = 30.0
    quick: bool = False

    def size_of(self, row: Row) -> str:
        seconds = f"{self.seconds * row.share:g} s"
        if row.by_seconds:
            return seconds + (f" over {len(row.points)} points" if len(row.points) > 1 else "")
        return f"{self.bytes * row.share / 1e9:g} GB or {seconds}"

    def rounds_of(self, row: Row) -> range:
        """The numbers of its rounds; those below 0 are warm-ups."""
        return range(-min(self.warm_ups, row.warm_ups_max), min(self.runs, row.runs_max))


def warm_up_share(row: Row) -> float:
    return WARM_UP_SHARE_BY_SECONDS if row.by_seconds else WARM_UP_SHARE


def is_calm(turns: dict[str, Figures]) -> bool:
    return all(found["stolen_cores"] <= CALM_CORES_MAX for found in turns.values())


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def estimate_s(row: Row, sides: int, settings: Settings) -> float:
    """About how long a row takes; from figures of one machine, so no more than a hint."""
    run_s = settings.seconds * row.share / len(row.points)
    if not row.by_seconds:
        run_s = row.share * min(settings.seconds, row.seconds_per_gb * settings.bytes / 1e9)
    rounds = settings.rounds_of(row)
    full = sum(1.0 if number >= 0 else warm_up_share(row) for number in rounds)
    return len(row.points) * sides * (full * run_s + len(rounds) * row.overhead_s)


class Bench:
    def __init__(self, lab: Lab, settings: Settings) -> None:
        self.lab = lab
        self.settings = settings

    def sides(self, row: Row) -> list[Side]:
        return [side for side in row.sides if side.node != "apache" or self.lab.has_apache]

    def client_of(self, row: Row) -> str:
        if row.client == "java" or (row.client == "java or generator" and self.lab.no_java is None):
            return f"Java {apache.VERSION} {' '.join(java_load.FLAGS)}"
        if row.client == "plain sockets":
            return row.client
        return "C generator" if generator.is_native() else "Python generator, itself the limit"

    def measure(self, row: Row) -> dict[str, Any]:
        cells: dict[str, list[Figures]] = {}
        errors: dict[str, str] = {}
        repeats = dict.fromkeys(row.points, 0)
        runs = {
            key_of(side.label, point): self._run(row, side, point) for point in row.points for side in self.sides(row)
        }
        try:
            for key, run in runs.items():
                self._step(key, errors, lambda run=run: row.prepare(run) if row.prepare else None)
            for number in self.settings.rounds_of(row):
                self._round(row, runs, number, cells, errors, repeats)
        finally:
            for key, run in runs.items():
                self._step(key, errors, lambda run=run: row.finish(run) if row.finish else None)
        return {
            "title": row.title,
            "commit": results.commit(),
            "when": time.strftime("%Y-%m-%d"),
            "client": self.client_of(row),
            "runs": self.settings.rounds_of(row).stop,
            "repeated": sum(repeats.values()),
            "size": self.settings.size_of(row),
            "quick": self.settings.quick,
            "cells": cells,
            "errors": errors,
        }

    def _run(self, row: Row, side: Side, point: str) -> Run:
        seconds = self.settings.seconds * row.share / (len(row.points) if row.by_seconds else 1)
        return Run(self.lab, side, point, int(self.settings.bytes * row.share), seconds)

    def _round(
        self,
        row: Row,
        runs: dict[str, Run],
        number: int,
        cells: dict[str, list[Figures]],
        errors: dict[str, str],
        repeats: dict[str, int],
    ) -> None:
        """Every side at every point once; the sides take turns in going first."""
        for point in row.points:
            found = self._turns(row, runs, point, number, errors)
            while number >= 0 and not is_calm(found) and repeats[point] < self.settings.runs:
                repeats[point] += 1
                say(f"  {row.name}: once more, the host took more than {CALM_CORES_MAX} of our cores")
                found = self._turns(row, runs, point, number, errors)
            if number >= 0:
                for key, figures in found.items():
                    cells.setdefault(key, []).append(figures)

    def _turns(
        self, row: Row, runs: dict[str, Run], point: str, number: int, errors: dict[str, str]
    ) -> dict[str, Figures]:
        sides = self.sides(row) if number % 2 == 0 else self.sides(row)[::-1]
        share = warm_up_share(row) if number < 0 else 1.0
        name = f"run {number + 1}/{self.settings.rounds_of(row).stop}" if number >= 0 else "warm-up"
        turns: dict[str, Figures] = {}
        for key in [key_of(side.label, point) for side in sides]:
            if key in errors:
                continue
            full = runs[key]
            run = Run(full.lab, full.side, full.point, int(full.bytes * share), full.seconds * share, full.kept)
            started, stolen = time.monotonic(), stolen_s()
            found = self._step(key, errors, lambda run=run: row.measure(run))
            if found is None:
                continue
            found["stolen_cores"] = (stolen_s() - stolen) / max(time.monotonic() - started, 0.01)
            first = row.shows[0]
            shown = f"{table.number(found[first])} {table.UNITS[first]}"
            say(f"  {row.name}, {name}, {key}: {shown} ({time.monotonic() - started:.1f} s)")
            turns[key] = found
        return turns

    @staticmethod
    def _step(key: str, errors: dict[str, str], action: Any) -> Any:
        """A side that fails is left out from there on, and said so; the others go on."""
        try:
            return action()
        except FAILURES as error:
            errors.setdefault(key, f"{type(error).__name__}: {error}")
            say(f"  {key} FAILED: {error}")
            return None


def run_node(rows: list[Row], settings: Settings, path: Path, *, with_apache: bool) -> int:
    # So that brokers and clients end with us whoever ends us.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        return _run_rows(rows, settings, path, with_apache)
    finally:
        signal.signal(signal.SIGTERM, before)


def _run_rows(rows: list[Row], settings: Settings, path: Path, with_apache: bool) -> int:
    failed = False
    merged = results.read(path)
    with Lab(with_apache=with_apache and apache.why_not() is None, warm_s=settings.seconds / 2) as lab:
        about = _introduce(lab, rows, settings, path)
        bench = Bench(lab, settings)
        for number, row in enumerate(rows, 1):
            if row.client == "java" and lab.no_java is not None:
                say(f"{row.name}: left out, {lab.no_java}")
                continue
            left_s = sum(estimate_s(later, len(bench.sides(later)), settings) for later in rows[number - 1 :])
            say(f"row {number}/{len(rows)}: {row.name}: {row.title} (about {left_s / 60:.0f} min to go)")
            started = time.monotonic()
            found = bench.measure(row)
            failed = failed or bool(found["errors"])
            merged = results.merge(path, results.machine() | {"apache": about}, {row.name: found})
            print(f"\n{table.figures(row, found)}\n", flush=True)
            say(f"{row.name} took {time.monotonic() - started:.0f} s")
    measured = {row.name: merged["rows"][row.name] for row in rows if row.name in merged["rows"]}
    print(f"\n{table.targets(merged | {'rows': measured})}\n\nin {path}; `./dev bench table {path}` shows all of it")
    return 1 if failed else 0


def _introduce(lab: Lab, rows: list[Row], settings: Settings, path: Path) -> str:
    """Says what is going to happen, and returns what Apache Kafka is run with."""
    about = f"Apache Kafka {apache.VERSION} with -Xms{HEAP} -Xmx{HEAP} -XX:+UseG1GC"
    if not lab.has_apache:
        about = f"without Apache Kafka ({apache.why_not() or 'as asked'})"
    total_s = sum(estimate_s(row, len(row.sides) if lab.has_apache else 1, settings) for row in rows)
    rounds = f"{settings.warm_ups} warm-ups, {settings.runs} interleaved runs"
    say(f"{about}; {rounds}; about {total_s / 60:.0f} min; into {path}")
    mode = f"{SYNC_MODE}=page-cache for Tidelog, except where a row says synced"
    say(mode if sync_mode_is_known() else f"{SYNC_MODE} is not known to this Tidelog: every row runs as it comes")
    if not generator.is_native():
        say("no C compiler: small requests and fetches come from a Python generator, which is slower than the brokers")
    return about
