"""Histories of clients under faults: make one, check one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.chaos.checker import check
from tests.chaos.generate import generate
from tests.chaos.history import load, save


def check_file(args: argparse.Namespace) -> int:
    report = check(load(args.file))
    print("\n".join(report.lines()))
    return 0 if report.ok else 1


def generate_file(args: argparse.Namespace) -> int:
    history = generate(args.seed, args.steps, args.partitions)
    save(history, args.file)
    print(f"{len(history.ops):,} operations in {args.file}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    checking = commands.add_parser("check", help="name the anomalies of a history file; exit code 1 if there are any")
    checking.add_argument("file", type=Path)
    checking.set_defaults(function=check_file)
    making = commands.add_parser("generate", help="write a good history, made by a model")
    making.add_argument("file", type=Path)
    making.add_argument("--steps", type=int, default=10_000)
    making.add_argument("--partitions", type=int, default=5)
    making.add_argument("--seed", type=int, default=1)
    making.set_defaults(function=generate_file)
    args = parser.parse_args()
    return int(args.function(args))


if __name__ == "__main__":
    sys.exit(main())
