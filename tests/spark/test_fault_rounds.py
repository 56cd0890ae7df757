"""Some rounds of `./dev faults` on a standalone cluster: each ends with a balanced audit.

They kill an executor, the driver, the Python worker of a task, and the node, which stays away until every flow has
failed for it; the seed draws their order and their moments.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.faults.cluster import NEEDED_MIB
from tests.spark.faults.judging import compare_log, compare_published, pair_troubles
from tests.spark.faults.kinds import FAULTS, KILLS, schedule, strikes
from tests.spark.faults.processes import available_mib
from tests.spark.faults.rounds import run
from tests.spark.faults.speculation import HOSTS, Wins

SEED = 7
ROUNDS = ("executor", "driver", "python-worker", "away")
NO_LINUX = "the rig finds Spark's processes by /proc"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason=NO_LINUX)
@pytest.mark.timeout(1800)  # a cluster of five JVMs, two drivers; minutes alone, many beside others
def test_rounds_of_kills_end_with_a_balanced_audit(tmp_path: Path) -> None:
    free = available_mib()
    if free is not None and free < NEEDED_MIB:
        pytest.skip(f"a Spark cluster needs {NEEDED_MIB} MiB of memory, {free} are available")
    outcome = run(tmp_path, rounds=len(ROUNDS), seed=SEED, faults=ROUNDS, away_s=0, say=print)
    assert outcome.ok, "\n".join(outcome.lines())
    assert len(outcome.rounds) == len(ROUNDS)
    assert outcome.records > 0


def test_a_schedule_begins_with_the_kills_and_has_every_fault() -> None:
    every = tuple(FAULTS)
    for seed in range(20):
        plan = schedule(20, Random(seed), every)
        assert set(plan[:3]) == set(KILLS)
        assert set(plan) == set(every)
        assert plan == schedule(20, Random(seed), every)


def test_a_fault_strikes_where_it_can() -> None:
    assert all(strikes(kind, "standalone") for kind in FAULTS)
    assert {kind for kind in FAULTS if not strikes(kind, "local")} == {"executor", "speculative"}
    assert {kind for kind in FAULTS if not strikes(kind, "local-cluster")} == {"speculative"}


def test_only_second_attempts_that_are_done_elsewhere_count(tmp_path: Path) -> None:
    stopped, other = HOSTS

    def end(speculative: bool, reason: str, host: str = other) -> str:
        event = {
            "Event": "SparkListenerTaskEnd",
            "Task End Reason": {"Reason": reason},
            "Task Info": {"Attempt": 1, "Host": host, "Speculative": speculative},
        }
        return json.dumps(event, separators=(",", ":"))

    start = '{"Event":"SparkListenerTaskStart","Task Info":{"Attempt":1,"Speculative":true}}'
    slow = end(True, "Success", stopped)  # the first attempt was on the other host, which was only slow
    lines = [start, end(True, "TaskKilled"), end(False, "Success"), slow, end(True, "Success")[:-5]]
    wins = Wins(tmp_path)
    (tmp_path / "one").write_text("\n".join(lines))
    assert wins.over(stopped) == 0
    (tmp_path / "two").write_text("\n".join([end(True, "Success"), *lines]))
    assert wins.over(stopped) == 1
    assert wins.over(stopped) == 1, "each is counted once"
    assert wins.over(other) == 2, "the slow one of each log"


def test_the_log_is_held_against_what_was_acknowledged() -> None:
    told = {(0, 0): b"a", (0, 1): b"b", (1, 0): b"c"}
    assert compare_log(told, dict(told)) == []
    assert compare_log(told, {**told, (0, 1): b"x"}) == [
        "1 acknowledged records are not in the log, (0, 1) first",
    ]
    assert compare_log(told, {(0, 0): b"a", (1, 0): b"c"}) == [
        "1 acknowledged records are not in the log, (0, 1) first",
    ]
    assert compare_log(told, {**told, (1, 1): b"c"}) == [
        "1 records in the log were never acknowledged, (1, 1) first",
        "1 records are in the log twice, b'c' first",
    ]


def test_pairs_are_held_against_the_log() -> None:
    log = {(n % 2, n): b'{"id": %d}' % n for n in range(12)}
    # Five ids apart, and the earlier one is no multiple of three.
    pairs = Counter([(0, 6, 1, 1), (1, 7, 0, 2), (1, 9, 0, 4), (0, 10, 1, 5)])
    assert pair_troubles(pairs, Counter(), log) == []
    assert pair_troubles(pairs - Counter([(1, 9, 0, 4)]), Counter(), log) == [
        "1 pairs are not in the table, (1, 9, 0, 4) first",
    ]
    assert pair_troubles(pairs - Counter([(1, 9, 0, 4)]), Counter([("left", 1, 9)]), log) == []
    assert pair_troubles(pairs - Counter([(1, 9, 0, 4)]), Counter([("right", 0, 4)]), log) == []
    assert pair_troubles(pairs + Counter([(0, 6, 1, 1)]), Counter(), log) == [
        "1 pairs of the table are doubled or foreign, (0, 6, 1, 1) first",
    ]
    # A late row is joined with nothing.
    assert pair_troubles(pairs, Counter([("right", 1, 5)]), log) == [
        "1 pairs of the table are doubled or foreign, (0, 10, 1, 5) first",
    ]


def test_what_was_published_is_held_against_the_log() -> None:
    log = {(0, 0): b'{"id": 10}', (0, 1): b'{"id": 11}', (1, 0): b'{"id": 20}'}
    assert compare_published({(0, 0): b"20", (0, 2): b"10"}, log) == []
    assert compare_published({(0, 0): b"10"}, log) == ["1 rows were not published, b'20' is one"]
    assert compare_published({(0, 0): b"10", (0, 1): b"20", (0, 4): b"10"}, log) == [
        "1 rows were published twice or are foreign, b'10' is one",
    ]
