"""A run: rounds of faults by a seed, the audit after each, and at the end the whole truth.

A round: every flow lands a batch, a fault strikes in a drawn moment and is healed, what was acknowledged by then lands
in every table, and the audit of every flow balances while the pipeline runs on.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.spark.faults.judging import (
    audit_lines,
    compare_log,
    compare_pairs,
    compare_published,
    compare_table,
    proof_lines,
    read_log,
)
from tests.spark.faults.kinds import FAULTS, schedule, strikes
from tests.spark.faults.moments import MOMENTS, wait_for
from tests.spark.faults.rig import JOINED, PUBLISHED, Rig, rig
from tidelog.kernel.errors import TidelogError
from tidelog.spark.pipeline.kinds.ingest import Ingest


@dataclass
class Round:
    number: int
    fault: str
    moment: str
    seconds: float
    """From the fault to the moment when all that was acknowledged by its end had landed in every table."""
    records: int
    troubles: list[str]


@dataclass
class Outcome:
    rounds: list[Round] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    """Of the end: log against acknowledgements, tables against log."""
    records: int = 0

    @property
    def ok(self) -> bool:
        return not self.troubles and not any(one.troubles for one in self.rounds)

    def lines(self) -> list[str]:
        found = [f"{'ROUND':<6}{'FAULT':<38}{'MOMENT':<38}{'LANDED AFTER':>13}{'RECORDS':>9}  AUDIT"]
        for one in self.rounds:
            verdict = "DOES NOT BALANCE" if one.troubles else "balanced"
            found.append(
                f"{one.number:<6}{one.fault:<38}{one.moment:<38}{one.seconds:>11.1f} s{one.records:>9}  {verdict}"
            )
        found += [trouble for one in self.rounds for trouble in one.troubles]
        found += [f"TROUBLE: {trouble}" for trouble in self.troubles]
        found.append(f"{self.records} records acknowledged; {'all is well' if self.ok else 'FAILED'}")
        return found


def run(
    home: Path,
    *,
    rounds: int,
    seed: int,
    master: str = "standalone",
    rate: int = 100,
    away_s: float = 60.0,
    faults: tuple[str, ...] = (),
    moments: tuple[str, ...] = MOMENTS,
    flows: str = "formats",
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Everything is in `home`. `faults`: these kinds and no others, or those that the master allows."""
    random = Random(seed)
    allowed = faults or tuple(kind for kind in FAULTS if strikes(kind, master))
    outcome = Outcome()
    with rig(home, master=master, rate=rate, flows=flows, say=say) as it:
        try:
            for number, kind in enumerate(schedule(rounds, random, allowed), 1):
                moment = random.choice(moments)
                outcome.rounds.append(_round(it, number, kind, moment, random, away_s, say))
                if outcome.rounds[-1].troubles:
                    break  # later rounds would only say it again
            _finish(it, outcome, say)
        except (RuntimeError, TimeoutError, AssertionError, TidelogError, subprocess.TimeoutExpired) as error:
            # What was seen until then is told all the same.
            outcome.troubles.append(f"{type(error).__name__}: {error}")
        outcome.records = len(it.generator.acknowledged)
    return outcome


def _round(
    it: Rig, number: int, kind: str, moment: str, random: Random, away_s: float, say: Callable[[str], None]
) -> Round:
    it.driver.wait_batches(f"round {number}: no batch before the fault")
    when = wait_for(moment, it.driver, random)
    began_s = time.monotonic()
    what = FAULTS[kind](it, random, away_s)
    say(f"round {number}: {what}, {when}")
    ends = it.generator.ends()
    it.driver.wait_landed(it.generator.topic, ends, f"round {number}: {what}: not landed: {ends}")
    seconds = time.monotonic() - began_s
    troubles = [f"round {number}, {flow}: {text}" for flow, text in audit_lines(it.file).items() if text is not None]
    records = len(it.generator.acknowledged)
    say(f"round {number}: landed after {seconds:.1f} s, {'DOES NOT BALANCE' if troubles else 'balanced'}")
    return Round(number, what, when, seconds, records, troubles)


def _finish(it: Rig, outcome: Outcome, say: Callable[[str], None]) -> None:
    it.generator.finish()
    say("no more records; the flows catch up")
    it.driver.wait_landed(it.generator.topic, it.generator.ends(), "the flows do not catch up")
    if (code := it.driver.stop()) != 0:
        outcome.troubles.append(f"the driver ended with {code}, after {signal.SIGTERM.name}")
    outcome.troubles += it.generator.troubles
    log = read_log(it.node.bootstrap_servers, it.generator.topic)
    outcome.troubles += compare_log(it.generator.acknowledged, log)
    flows = it.driver.pipeline.flows
    for name, flow in flows.items():
        if isinstance(flow, Ingest) and flow.dead_letters is None:
            outcome.troubles += [f"{name}: {trouble}" for trouble in compare_table(flow.table, log)]
    if any(PUBLISHED in flow.topics_written for flow in flows.values()):
        published = read_log(it.node.bootstrap_servers, PUBLISHED)
        outcome.troubles += [f"{PUBLISHED}: {trouble}" for trouble in compare_published(published, log)]
    if JOINED in flows:
        outcome.troubles += [f"{JOINED}: {trouble}" for trouble in compare_pairs(flows[JOINED], log)]
    say("every flow is proved")
    outcome.troubles += [f"{flow}: {text}" for flow, text in proof_lines(it.file).items() if text is not None]
