"""Tests of the test: every anomaly, planted in a good history, is named; a good history is never blamed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.chaos.checker import ERRORS, check
from tests.chaos.generate import generate
from tests.chaos.history import Disown, Meta, Op, Own, Poll, Recorder, Send, Subscribe, load, merge, of, save
from tests.chaos.plants import PLANTS

SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.integers(0, 600), st.integers(1, 5))
@settings(max_examples=60)
def test_a_good_history_has_no_anomalies(seed: int, steps: int, partitions: int) -> None:
    report = check(generate(seed, steps, partitions))
    assert report.ok, "\n".join(report.lines())


@pytest.mark.parametrize("name", ERRORS)
@given(seed=SEEDS)
@settings(max_examples=10, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_a_planted_anomaly_is_named(name: str, seed: int) -> None:
    history = generate(seed, 250)
    assume(PLANTS[name](history))
    history.ops.sort(key=lambda op: op.start)
    report = check(history)
    assert name in report.counts, report.counts
    assert any(anomaly.name == name for anomaly in report.examples)


def test_good_histories_have_what_makes_them_hard() -> None:
    """Unknown outcomes that happened, others that did not, aborts, and values that a group polled twice."""
    history = generate(7, 2000)
    report = check(history)
    outcomes: Counter[tuple[str, bool]] = Counter((op.outcome, op.transactional) for op in history.ops)
    for outcome in ("ok", "fail", "unknown"):
        assert min(outcomes[outcome, False], outcomes[outcome, True]) > 5
    assert report.consume_counts[1] and report.consume_counts[2]
    assert report.notices["int-send-skip"] and report.notices["nonmonotonic-poll"] == 0


def txn(process: str, number: int, *actions: Send | Poll) -> Op:
    at = number * 10
    return Op(
        process=process,
        number=number,
        start=at,
        decided=at + 1,
        end=at + 2,
        outcome="ok",
        transactional=True,
        actions=list(actions),
    )


def test_writes_in_a_circle_are_allowed() -> None:
    one = txn("a", 1, Send("k/0", "a", 0), Send("k/1", "b", 1))
    two = txn("b", 2, Send("k/0", "c", 1), Send("k/1", "d", 0))
    report = check(of([one, two]))
    assert report.ok
    assert report.notices == {"G0": 1, "G1c-ww": 1}


def test_a_member_of_a_group_may_be_moved_between_polls_an_assigned_reader_may_not() -> None:
    sends = [
        Op(process="s", number=at, start=at, end=at, outcome="ok", actions=[Send("k/0", f"v{at}", at)])
        for at in range(3)
    ]
    polls = [
        Op(process="r", number=n, start=10 + n, end=10 + n, outcome="ok", actions=[Poll("k/0", f"v{at}", at)])
        for n, at in enumerate((0, 2, 1))
    ]
    assert check(of([*sends, *polls])).counts == {"poll-skip": 1, "nonmonotonic-poll": 1}
    joined = Op(process="r", number=9, start=9, end=9, outcome="ok", actions=[Subscribe("g")])
    report = check(of([*sends, joined, *polls]))
    assert report.ok
    assert report.notices == {"poll-skip": 1, "nonmonotonic-poll": 1}


def test_a_value_of_an_unknown_send_may_be_there_or_not() -> None:
    op = Op(process="s", number=1, start=1, actions=[Send("k/0", "v")])
    read = Op(process="r", number=1, start=2, end=3, outcome="ok", actions=[Poll("k/0", "v", 0)])
    assert check(of([op])).ok
    assert check(of([op, read])).ok


def test_without_idempotence_duplicates_and_order_are_reported_only() -> None:
    ops = [
        Op(process="s", number=1, start=1, end=2, outcome="ok", actions=[Send("k/0", "a", 5)]),
        Op(process="s", number=2, start=3, end=4, outcome="ok", actions=[Send("k/0", "b", 4)]),
        Op(process="r", number=1, start=5, end=6, outcome="ok", actions=[Poll("k/0", "a", 3)]),
    ]
    assert check(of(ops)).counts == {"duplicate": 1, "nonmonotonic-send": 1}
    report = check(of(ops, idempotent=False))
    assert report.ok
    assert report.notices == {"duplicate": 1, "nonmonotonic-send": 1}


def test_a_history_is_written_as_it_happens_and_read_again(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "part", "p")
    op = recorder.begin(Send("k/0", "v"), transactional=True)
    (killed,) = merge(Meta(), [tmp_path / "part"]).ops
    assert (killed.outcome, killed.end, killed.actions) == ("unknown", None, [Send("k/0", "v")])
    recorder.decide(op)
    recorder.end(op, "ok")
    recorder.close()
    with (tmp_path / "part").open("ab") as file:
        file.write(b'{"process":"p","numb')  # the kill came here
    history = merge(Meta(workload="w", seed=3), [tmp_path / "part"])
    assert history.ops == [op]
    save(history, tmp_path / "history")
    assert load(tmp_path / "history") == history


def owned(process: str, number: int, *actions: Own | Disown) -> Op:
    return Op(process=process, number=number, start=number, end=number, outcome="ok", actions=list(actions))


def test_who_was_stopped_or_taken_over_owns_nothing() -> None:
    given = owned("a", 1, Own("g", ("k/0", "k/1")))
    again = owned("b", 3, Own("g", ("k/0",)))
    assert check(of([given, again])).counts == {"double-owner": 1}
    assert check(of([given, owned("a", 2, Disown("g", ("k/0",))), again])).ok
    assert check(of([given, owned("a", 2, Disown("g", ())), again])).ok, "all of the group"
    assert not check(of([given, owned("a", 2, Disown("another", ())), again])).ok
    static = owned("a", 1, Own("g", ("k/0",), "instance"))
    assert check(of([static, owned("b", 2, Own("g", ("k/0",), "instance"))])).ok
    assert not check(of([static, owned("b", 2, Own("g", ("k/0",), "other"))])).ok
