"""`./dev bench cleaning --latency`: what producers and consumers notice of a cleaning, beside Apache Kafka.

Single records go at a steady rate to a topic of their own. After a quiet while a large log of another topic becomes
compacted and is cleaned, as fast as the cleaner can or with a throttle. What the records waited in the quiet while is
compared with what they waited during the cleaning: both come from one run of one client, seconds apart."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench import topics
from bench.cleaning import CLUSTER, Side, configure, fill, is_cleaned, started
from bench.cpu import stolen_s
from bench.node import CALM_CORES_MAX
from tools import apache

SIDES = ("tidelog", "apache")
THROTTLE = "log.cleaner.io.max.bytes.per.second"
LOAD_TOPIC = "load"
_STARTS_WITHIN_S = 60.0
_POLL_S = 0.01
_SETTLE_S = 3.0
"""The first connections, the first fetch and a cold JVM are no part of the quiet while."""


class Waits(NamedTuple):
    """Milliseconds, of the records that were due in a while."""

    count: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, samples: list[tuple[float, float]], begin_s: float, end_s: float) -> Waits:
        waits = sorted(wait_s for due_s, wait_s in samples if begin_s <= due_s < end_s)
        if not waits:
            return cls(0, float("nan"), float("nan"))
        p50_s, p99_s = (waits[min(int(len(waits) * part), len(waits) - 1)] for part in (0.5, 0.99))
        return cls(len(waits), p50_s * 1000, p99_s * 1000)


class Noticed(NamedTuple):
    cleaning_s: float
    produce: tuple[Waits, Waits]
    """Before the cleaning and in it."""
    consume: tuple[Waits, Waits]
    """From when it was due to when the consumer had it."""
    stolen_cores: float = 0.0
    """What the host of a virtual machine kept for others meanwhile."""


def run_latency(
    size: int,
    *,
    seconds: float,
    rate: float,
    throttle: int,
    runs: int,
    live: float,
    sides: str | None,
    path: Path | None,
) -> int:
    names = [name for name in SIDES if name != "apache" or apache.why_not() is None]
    names = [name for name in names if sides is None or name in sides.split(",")]
    modes = {"uncapped": 0, f"{throttle / 1e6:g} MB/s": throttle}
    results: dict[str, list[Noticed]] = {}
    repeats: dict[str, int] = {}
    with TemporaryDirectory(prefix="tidelog-bench-") as home, ExitStack() as stack:
        brokers = {name: stack.enter_context(started(name, Path(home))) for name in names}
        for side in brokers.values():
            topics.create(side.address, LOAD_TOPIC)
        for run in range(-1, runs):  # the first one warms up: the JVM compiles, and so does numba
            for mode, bytes_per_s in modes.items():
                for name in names if run % 2 == 0 else names[::-1]:
                    key, what = f"{mode}, {name}", "warm-up" if run < 0 else f"run {run + 1}/{runs}"
                    while True:
                        found = _measure(brokers[name], Path(home), run, size, seconds, rate, bytes_per_s, live)
                        print(f"{time.strftime('%H:%M:%S')} {key}, {what}: {_shown(found)}", flush=True)
                        if run < 0 or found.stolen_cores <= CALM_CORES_MAX or repeats.get(key, 0) >= runs:
                            break
                        repeats[key] = repeats.get(key, 0) + 1
                        print(f"  once more, the host took more than {CALM_CORES_MAX} of our cores", flush=True)
                    if run >= 0:
                        results.setdefault(key, []).append(found)
    print(render(results))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: [_plain(one) for one in found] for key, found in results.items()}, indent=1))
    return 0


def _measure(
    side: Side, home: Path, run: int, size: int, seconds: float, rate: float, bytes_per_s: int, live: float
) -> Noticed:
    topic = f"cleaned-{run + 1}-{bytes_per_s}"
    topics.create(side.address, topic)
    if bytes_per_s:
        configure(side.address, "", {THROTTLE: str(float(bytes_per_s))}, CLUSTER)
    try:
        fill(side.address, topic, size, "none", live)
        with _load(side.address, rate, home / "load.json") as samples:
            time.sleep(_SETTLE_S)
            begin_s, stolen = time.monotonic(), stolen_s()
            time.sleep(seconds)
            cleaning_s = time.monotonic()
            configure(side.address, topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
            while not is_cleaned(side.data, topic) and time.monotonic() < cleaning_s + seconds:
                time.sleep(_POLL_S)
            end_s = time.monotonic()
            stolen_cores = (stolen_s() - stolen) / (end_s - begin_s)
        made, taken = samples["acknowledged"], samples["consumed"]
        return Noticed(
            end_s - cleaning_s,
            (Waits.of(made, begin_s, cleaning_s), Waits.of(made, cleaning_s, end_s)),
            (Waits.of(taken, begin_s, cleaning_s), Waits.of(taken, cleaning_s, end_s)),
            stolen_cores,
        )
    finally:
        topics.delete(side.address, topic, side.data)
        if bytes_per_s:
            configure(side.address, "", {THROTTLE: None}, CLUSTER)


@contextmanager
def _load(address: str, rate: float, file: Path) -> Iterator[dict[str, Any]]:
    """What it found is in the result afterwards."""
    command = [sys.executable, "-m", "bench.steady_load", address, LOAD_TOPIC, str(rate), str(file)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = {}
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the load did not begin")
        yield found
        process.communicate(timeout=_STARTS_WITHIN_S)
        if process.returncode:
            raise RuntimeError("the load failed")
        found |= json.loads(file.read_text())
    finally:
        process.kill()
        process.wait()


def _plain(found: Noticed) -> dict[str, Any]:
    return {
        "cleaning_s": found.cleaning_s,
        "stolen_cores": found.stolen_cores,
        **{
            f"{what}_{when}": waits._asdict()
            for what, pair in (("produce", found.produce), ("consume", found.consume))
            for when, waits in zip(("quiet", "cleaning"), pair, strict=True)
        },
    }


def _shown(found: Noticed) -> str:
    parts = [
        f"{what} p99 {quiet.p99_ms:.2f} -> {during.p99_ms:.2f} ms"
        for what, (quiet, during) in (("produce", found.produce), ("end to end", found.consume))
    ]
    return f"{found.cleaning_s:.1f} s of cleaning, {', '.join(parts)}, {found.stolen_cores:.2f} cores taken by the host"


def render(results: dict[str, list[Noticed]]) -> str:
    """Medians over the runs, in milliseconds; the ratio is that of p99 in the cleaning to p99 before it."""
    head = f"{'':24} {'cleaning':>9} " + "".join(
        f"{what:>12}: {'quiet p50':>9} {'p99':>7} {'cleaning p50':>12} {'p99':>7} {'p99 ratio':>9}"
        for what in ("produce", "end to end")
    )
    lines = ["", head]
    for key, found in results.items():
        line = f"{key:24} {statistics.median(one.cleaning_s for one in found):7.1f} s "
        for place in ("produce", "consume"):
            pairs = [getattr(one, place) for one in found]
            quiet, during = ([pair[when] for pair in pairs] for when in (0, 1))
            quiet50, quiet99, during50, during99 = (
                statistics.median(getattr(waits, name) for waits in some)
                for some in (quiet, during)
                for name in ("p50_ms", "p99_ms")
            )
            ratio = f"{during99 / quiet99:.2f} x"
            line += f"{'':13} {quiet50:9.2f} {quiet99:7.2f} {during50:12.2f} {during99:7.2f} {ratio:>9}"
        lines.append(line)
    return "\n".join(lines)
