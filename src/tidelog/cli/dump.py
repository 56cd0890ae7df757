"""`tidelog dump`: what is in the files of a data directory, read-only, of a stopped or running node alike."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from tidelog.cli.common import CommandError, UsageError, print_json

Entry = dict[str, Any]
"""One thing in a file: what it is called and its fields, in the order in which they are shown."""

_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "dump",
        help="show what is in the files of a data directory",
        description="Show the batches and records of .log and .checkpoint files, the entries of .index, .timeindex, "
        ".txnindex and .snapshot files, and the text files beside them. A directory stands for all files in it.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="files or directories")
    parser.add_argument("-r", "--records", action="store_true", help="the records of each batch, too")
    parser.add_argument("--print-data-log", dest="records", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--from-offset", type=int, metavar="N", help="only batches that reach this offset")
    parser.add_argument("-n", "--max-batches", type=int, metavar="N", help="only so many batches of each file")
    parser.add_argument(
        "--decoder",
        choices=("auto", "raw", "metadata", "offsets", "transactions", "share"),
        default="auto",
        help="what records mean; auto goes by the name of the directory",
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON per batch, record or entry")
    parser.set_defaults(run=run, words="files")


def run(args: argparse.Namespace) -> int:
    if args.max_batches is not None and args.max_batches < 1:
        raise UsageError(f"--max-batches {args.max_batches}: expected 1 or more")
    failures = 0
    for path in _files(args.files):
        if not args.json:
            print(f"Dumping {path}")
        try:
            for entry in _entries(path, args):
                if args.json:
                    print_json({"file": path, **entry})
                else:
                    print(_line(entry))
                failures += entry.get("problem") is not None
        except BrokenPipeError:
            raise
        except (CommandError, OSError) as error:
            failures += 1
            print(f"tidelog: {path}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
    return 1 if failures else 0


def _files(paths: list[str]) -> Iterator[str]:
    for given in paths:
        for path in given.split(","):  # as --files of DumpLogSegments
            if os.path.isdir(path):
                names = sorted(os.listdir(path))
                yield from (os.path.join(path, name) for name in names if _reader(name) is not None)
            else:
                yield path


def _entries(path: str, args: argparse.Namespace) -> Iterator[Entry]:
    reader = _reader(os.path.basename(path))
    if reader is None:
        known = ", ".join(_SUFFIXES)
        raise CommandError(f"no file that a log directory holds; known are {known} and the checkpoints")
    return reader(path, args)


def _reader(name: str) -> Callable[[str, argparse.Namespace], Iterator[Entry]] | None:
    from tidelog.cli import dump_files, dump_log

    for suffix in (".deleted", ".cleaned", ".swap", ".part"):
        name = name.removesuffix(suffix)
    if name.endswith((".log", ".checkpoint")):
        return dump_log.read_batches
    return dump_files.reader_of(name)


def _line(entry: Entry) -> str:
    kind = entry.get("kind")
    head = "| " if kind == "record" else ""
    return head + " ".join(f"{name}: {_text(value)}" for name, value in entry.items() if name != "kind")


def _text(value: object) -> str:
    match value:
        case None:
            return "null"
        case True:
            return "true"
        case False:
            return "false"
        case dict() | list():
            import json

            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
