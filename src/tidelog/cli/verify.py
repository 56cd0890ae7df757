"""`tidelog verify`: every CRC, index and checkpoint of stopped data directories. It reads, and never repairs."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.common import CommandError, UsageError, add_json, print_json
from tidelog.kernel.errors import DirectoryLockedError

if TYPE_CHECKING:
    from tidelog.log.verify.directory import DirectoryCheck
    from tidelog.log.verify.report import Finding, Report

_BAR_WIDTH: Final = 30
_REFRESH_S: Final = 0.1


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "verify",
        help="check the files of a stopped node's data directories",
        description="Check every batch, index, snapshot and checkpoint of data directories, ours or Apache Kafka's, "
        "and name each damage in a line. Nothing is changed. Exit code 1 when anything is damaged. Notes are no "
        "damage: what a crash left and the next start puts in order, files on their way out.",
    )
    parser.add_argument("directories", nargs="*", metavar="DIR", help="data directories (log.dirs) of a stopped node")
    parser.add_argument("--deep", action="store_true", help="also decompress batches and read every record (slow)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no notes and no progress, only damages")
    add_json(parser)
    parser.set_defaults(run=run, words="directories")


def run(args: argparse.Namespace) -> int:
    if not args.directories:
        raise UsageError("name at least one data directory, as log.dirs does")
    with ExitStack() as stack:
        directories = _directories(args.directories)
        _lock(directories, stack)
        report = _verify(directories, args)
    return 1 if report.damages else 0


def _directories(given: list[str]) -> list[str]:
    directories = list(dict.fromkeys(path.rstrip("/") or "/" for text in given for path in text.split(",") if path))
    for path in directories:
        if not os.path.isdir(path):
            raise UsageError(f"there is no directory {path}")
    return directories


def _lock(directories: list[str], stack: ExitStack) -> None:
    from tidelog.log.directory import LOCK
    from tidelog.runtime.dirlock import lock_for_reading

    for path in directories:
        try:
            stack.callback(lock_for_reading(f"{path}/{LOCK}").release)
        except DirectoryLockedError:
            raise CommandError(f"a node runs on {path}: stop it first, its files change while they are read") from None


def _verify(directories: list[str], args: argparse.Namespace) -> Report:
    from tidelog.log.verify.directory import DirectoryCheck
    from tidelog.log.verify.report import Report
    from tidelog.raft.verify import check_metadata_log
    from tidelog.runtime.reading import ReadOnlyFiles

    bar = _Progress(shown=not args.quiet and not args.json and sys.stderr.isatty())
    started = monotonic()

    def tell(finding: Finding) -> None:
        if args.quiet and finding.severity == "note":
            return
        bar.clear()
        if args.json:
            print_json({"kind": "finding", **finding._asdict()})
        else:
            print(finding.line())

    report = Report(tell, bar.advance)
    checks = [
        DirectoryCheck(ReadOnlyFiles(), path, report, deep=args.deep, metadata=check_metadata_log)
        for path in directories
    ]
    for path, check in zip(directories, checks, strict=True):
        if not check.is_data_directory:
            raise UsageError(f"{path} is no data directory: it holds neither meta.properties nor a partition")
    bar.total = sum(check.log_bytes() for check in checks) if bar.shown else 0
    topics = None
    for check in sorted(checks, key=lambda check: not check.has_metadata_log):
        check.topics = topics
        check.run()
        topics = check.topics
    _compare(directories, checks, report)
    bar.clear()
    _summarise(report, len(directories), monotonic() - started, args)
    return report


def _compare(directories: list[str], checks: list[DirectoryCheck], report: Report) -> None:
    """What one directory alone cannot show."""
    owner: dict[tuple[str, int], str] = {}
    for path, check in zip(directories, checks, strict=True):
        for name in check.partitions:
            if name in owner:
                report.damage(f"{path}/{name[0]}-{name[1]}", f"the partition is also in {owner[name]}")
            owner.setdefault(name, path)
        first = checks[0].meta
        if check.meta is not None and first is not None and check is not checks[0]:
            if (check.meta.cluster_id, check.meta.node_id) != (first.cluster_id, first.node_id):
                report.damage(f"{path}/meta.properties", f"belongs to another node or cluster than {directories[0]}")
            elif check.meta.directory_id == first.directory_id:
                report.damage(f"{path}/meta.properties", f"has the same directory.id as {directories[0]}")


def _summarise(report: Report, directories: int, seconds: float, args: argparse.Namespace) -> None:
    counts = {
        "directories": directories,
        "partitions": report.partitions,
        "segments": report.segments,
        "batches": report.batches,
        "bytes": report.bytes,
        "damages": report.damages,
        "notes": report.notes,
    }
    if args.json:
        print_json({"kind": "summary", **counts, "seconds": round(seconds, 3)})
        return
    looked = f"{report.batches:,} batches in {report.segments:,} segments of {report.partitions:,} partitions"
    verdict = f"{_count(report.damages, 'damage')}, {_count(report.notes, 'note')}"
    print(f"{verdict}: {looked}, {report.bytes / 1e6:,.1f} MB in {seconds:.2f} s")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}" if number else f"no {noun}s"


class _Progress:
    """A bar on standard error, for people only."""

    def __init__(self, *, shown: bool) -> None:
        self.shown = shown
        self.total = 0
        self._done = 0
        self._drawn_at = 0.0
        self._drawn = False

    def advance(self, count: int) -> None:
        self._done += count
        if not self.shown:
            return
        now = monotonic()
        if now - self._drawn_at >= _REFRESH_S:
            self._drawn_at = now
            self._draw()

    def _draw(self) -> None:
        share = min(1.0, self._done / self.total) if self.total else 1.0
        bar = "#" * round(share * _BAR_WIDTH)
        text = f"{bar:-<{_BAR_WIDTH}} {share:4.0%} {self._done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB"
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
        self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = False
