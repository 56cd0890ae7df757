"""`./dev bench`: Tidelog beside Apache Kafka, in one run, driven by the same clients."""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    smoke = commands.add_parser("smoke", help="half a minute of produce and consume on both, as ratios")
    smoke.add_argument("--seconds", type=float, default=30, help="about how long the measured rounds take together")
    smoke.add_argument("--record-size", type=int, default=1000)
    requests = commands.add_parser("requests", help="CPU of our node per small request")
    requests.add_argument("--connections", type=int, default=200)
    requests.add_argument("--seconds", type=float, default=4, help="for each kind of request")
    requests.add_argument("--mode", choices=("page-cache", "synced"), default="page-cache")
    requests.add_argument("--only", help="the kinds whose name holds this")
    args = parser.parse_args()
    if args.command == "requests":
        from bench.requests import run_requests

        return run_requests(args.connections, args.seconds, args.only, args.mode)
    from bench.smoke import run_smoke

    return run_smoke(args.seconds, args.record_size)


if __name__ == "__main__":
    sys.exit(main())
