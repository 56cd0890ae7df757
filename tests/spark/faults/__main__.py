"""A pipeline under faults: rounds of kill -9 and worse, each of which must end with a balanced audit."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from tests.planting import planted
from tests.spark.faults.cluster import KINDS, NEEDED_MIB
from tests.spark.faults.kinds import FAULTS, MASTERS, strikes
from tests.spark.faults.moments import MOMENTS
from tests.spark.faults.plants import PLANTS
from tests.spark.faults.processes import available_mib
from tests.spark.faults.rig import FLOWS
from tests.spark.faults.rounds import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="faults, one after the other (20)")
    parser.add_argument("--seed", type=int, default=1, help="draws the faults and their moments (1)")
    parser.add_argument("--master", choices=KINDS, default="standalone", help="where tasks run (standalone)")
    parser.add_argument(
        "--flows", choices=FLOWS, default="formats", help="an ingest flow per format, or one of each kind"
    )
    parser.add_argument("--rate", type=int, default=100, help="records a second (100)")
    parser.add_argument("--away", type=float, default=60.0, metavar="S", help="how long a node is away (60 s)")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="only this kind; may be repeated")
    parser.add_argument("--moment", action="append", choices=MOMENTS, help="only then; may be repeated")
    parser.add_argument("--plant", action="append", choices=list(PLANTS), help="a bug, which the run must catch")
    parser.add_argument("--keep", type=Path, help="a new directory for everything, which stays")
    args = parser.parse_args()
    for fault in args.fault or ():
        if not strikes(fault, args.master):
            allowed = " and ".join(MASTERS[fault])
            parser.error(f"--fault {fault} cannot strike with --master {args.master}; allowed are {allowed}")
    # Whoever ends the run means all of it; and a shell that starts it in the background has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    free = available_mib()
    if free is not None and free < NEEDED_MIB:
        parser.error(f"this needs {NEEDED_MIB} MiB of memory; {free} are available")
    home = args.keep or Path(tempfile.mkdtemp(prefix="tidelog-faults-"))
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {text}", file=sys.stderr, flush=True)

    say(f"seed {args.seed}, {args.rounds} rounds, {args.master}; everything is in {home}")
    bug = planted(home / "bug", "".join(PLANTS[name] for name in args.plant)) if args.plant else nullcontext()
    with bug:
        outcome = run(
            home,
            rounds=args.rounds,
            seed=args.seed,
            master=args.master,
            rate=args.rate,
            away_s=args.away,
            faults=tuple(args.fault or ()),
            moments=tuple(args.moment or MOMENTS),
            flows=args.flows,
            say=say,
        )
    print("\n".join(outcome.lines()))
    print(f"again: ./dev faults --rounds {args.rounds} --seed {args.seed} --master {args.master} --flows {args.flows}")
    if outcome.ok and args.keep is None:
        shutil.rmtree(home, ignore_errors=True)
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())
