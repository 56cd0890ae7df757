"""`./dev fuzz`: throw bytes and spoiled requests at a node for as long as you like."""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.fuzz.fuzzer import Unwell, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1, help="how long (1)")
    parser.add_argument("--seed", type=int, help="the same requests again (a new seed is drawn and printed)")
    parser.add_argument("--first", type=int, default=0, help="the round to begin with (0)")
    parser.add_argument("--rounds", type=int, help="this many rounds instead of minutes")
    args = parser.parse_args()
    seed = secrets.randbelow(2**31) if args.seed is None else args.seed
    print(f"fuzz: seed {seed}", flush=True)
    started_s = time.monotonic()
    seconds = None if args.rounds is not None else args.minutes * 60
    try:
        done = run(seed, seconds=seconds, rounds=args.rounds, first=args.first)
    except Unwell as error:
        print(f"fuzz: {error}")
        return 1
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(done.counts.items()))
    memory = [size >> 20 for size in done.memory_bytes]
    print(
        f"fuzz: {done.requests} requests ({kinds}) in {time.monotonic() - started_s:.0f} s; memory {memory[0]} MB at"
        f" first, {memory[-1]} MB at last, {max(memory)} MB at most; longest stop of the loop {done.lag_s_max:.2f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
