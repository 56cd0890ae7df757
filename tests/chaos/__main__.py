"""Histories of clients under faults: make one, check one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.chaos.checker import check
from tests.chaos.generate import generate
from tests.chaos.history import load, save
from tests.chaos.workloads import WORKLOADS


def check_file(args: argparse.Namespace) -> int:
    report = check(load(args.file))
    print("\n".join(report.lines()))
    return 0 if report.ok else 1


def generate_file(args: argparse.Namespace) -> int:
    history = generate(args.seed, args.steps, args.partitions)
    save(history, args.file)
    print(f"{len(history.ops):,} operations in {args.file}")
    return 0


def run_workloads(args: argparse.Namespace) -> int:
    from tests.chaos.run import run

    failures = 0
    for name in WORKLOADS if args.workload == "all" else (args.workload,):
        for seed in range(args.seed, args.seed + args.runs):
            java = False if args.no_java else None
            outcome = run(name, seconds=args.seconds, seed=seed, broker=args.broker, java=java, keep=args.keep)
            print(f"{name}, {args.broker}, seed {seed}: {'passed' if outcome.ok else 'FAILED'}")
            print("\n".join(f"  {line}" for line in outcome.lines()), flush=True)
            failures += not outcome.ok
    return 1 if failures else 0


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1].startswith("--") and sys.argv[1] != "--help":
        sys.argv.insert(1, "run")
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    running = commands.add_parser("run", help="real clients under faults (the default: ./dev chaos --workload w3)")
    running.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all")
    running.add_argument("--seconds", type=float, default=20.0, help="how long there are faults (20)")
    running.add_argument("--seed", type=int, default=1, help="draws the faults and what clients do (1)")
    running.add_argument("--runs", type=int, default=1, help="this many seeds, one after the other (1)")
    running.add_argument("--broker", choices=["tidelog", "apache"], default="tidelog")
    running.add_argument("--no-java", action="store_true", help="without the Java clients")
    running.add_argument("--keep", type=Path, help="where histories of failures stay (.cache/chaos)")
    running.set_defaults(function=run_workloads)
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
