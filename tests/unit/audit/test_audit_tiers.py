"""What members count, what of it arrives, and what may be concluded: pure, in made-up time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.audit.counting import Counting, Member
from tidelog.audit.notices import Notice, NoticeError, decode, encode
from tidelog.audit.stamps import Stamp, stamp_of, stamped
from tidelog.audit.tiers import Gone, Reach, Tiers, TierWindow

WINDOW_MS = 100


def member(name: str = "checkout", tier: str = "producer", incarnation: str = "1") -> Member:
    return Member(tier, "web-3", name, incarnation)


def counting(now_ms: int = 0, **of: str) -> Counting:
    return Counting(member(**of), window_ms=WINDOW_MS, now_ms=now_ms, topics=("orders",))


def send(to: Counting, *times_ms: int, delivered: bool = True) -> None:
    for time_ms in times_ms:
        to.sending("orders", time_ms)
        to.sent("orders", time_ms, delivered=delivered)


def judged(notices: list[Notice], log: dict[int, int], lake: dict[int, int] | None = None) -> list[TierWindow]:
    tiers = Tiers(WINDOW_MS)
    for notice in notices:
        tiers.add(decode(encode(notice)))
    return tiers.judge("orders", log, now_ms=10_000, lake=lake)


def verdicts(*args: object) -> list[str]:
    return [one.verdict for one in judged(*args)]  # type: ignore[arg-type]


def test_all_that_was_sent_is_told_and_balances() -> None:
    producer, reader = counting(), counting(tier="billing", name="reader")
    notices = [producer.hello(), reader.hello()]
    send(producer, 10, 20, 150)
    for offset, time_ms in enumerate((10, 20, 150)):
        reader.consumed("orders", time_ms, 0, offset)
    assert producer.due(99) is None, "the window is not over"
    due = producer.due(100)
    assert due is not None and due.complete_to_ms == 100
    assert producer.due(101) is None, "told already"
    notices += [due, producer.bye(170), reader.bye(170)]
    first, second = judged(notices, {0: 2, 100: 1}, {0: 2, 100: 1})
    assert first == TierWindow("orders", 0, {"producer": 2, "log": 2, "billing": 2, "lake": 2}, "balanced")
    assert second.verdict == "balanced"
    assert verdicts(notices, {0: 2, 100: 1}, {0: 2, 100: 0}) == ["balanced", "off"]
    assert verdicts(notices, {0: 1, 100: 1}) == ["off", "balanced"]


def test_a_producer_that_died_leaves_unknown_and_never_balanced() -> None:
    producer = counting()
    notices = [producer.hello()]
    send(producer, 10)
    told = producer.due(120)
    assert told is not None
    notices.append(told)
    send(producer, 130)
    # The counts would even agree with what the log has of others.
    first, second, third = judged(notices, {0: 1, 100: 0, 200: 0})
    assert first.verdict == "balanced"
    assert (second.verdict, third.verdict) == ("unknown", "unknown")
    assert second.reasons == ("producer checkout on web-3 has not told of it",)


def test_one_that_starts_again_ends_what_is_unknown_of_the_one_before() -> None:
    dead = counting()
    notices = [dead.hello()]
    send(dead, 130)
    again = counting(now_ms=110, incarnation="2")
    notices.append(again.hello())
    send(again, 350)
    notices.append(again.bye(399))
    assert verdicts(notices, {0: 0, 100: 1, 200: 0, 300: 1, 400: 0}) == [
        "unknown",
        "unknown",
        "balanced",
        "balanced",
        "balanced",
    ]


def test_one_that_never_starts_again_is_dead_after_a_while() -> None:
    dead = counting()
    assert verdicts([dead.hello()], dict.fromkeys(range(0, 500, 100), 0)) == ["unknown"] * 3 + ["balanced"] * 2


def test_what_is_under_way_keeps_its_window_open() -> None:
    producer = counting()
    producer.hello()
    producer.sending("orders", 50)
    send(producer, 150)
    assert producer.due(400) is None
    producer.sent("orders", 50, delivered=True)
    due = producer.due(400)
    assert due is not None and due.complete_to_ms == 400
    producer.sending("orders", 450)
    assert not producer.bye(500).ended, "nobody knows what becomes of it"
    refused = counting()
    refused.sending("orders", 50)
    refused.not_sent(50)
    assert refused.bye(60).ended and not refused.bye(60).counts


def test_a_record_that_was_given_up_may_be_in_the_log() -> None:
    producer = counting()
    notices = [producer.hello()]
    send(producer, 10)
    send(producer, 20, delivered=False)
    notices.append(producer.bye(90))
    assert verdicts(notices, {0: 1}) == ["balanced"]
    assert verdicts(notices, {0: 2}) == ["unknown"]
    assert verdicts(notices, {0: 3}) == ["off"]


def test_topics_that_nobody_counts_are_unknown_and_windows_that_run_are_open() -> None:
    other = Counting(member(), window_ms=WINDOW_MS, now_ms=0, topics=("payments",))
    notices = [other.hello(), other.bye(10)]
    [only] = judged(notices, {0: 5})
    assert (only.verdict, only.reasons) == ("unknown", ("no producer counts for the topic",))
    assert Tiers(WINDOW_MS).judge("orders", {0: 5}, now_ms=99)[0].verdict == "open"


def test_what_no_silence_explains_is_off_at_once() -> None:
    producer = counting()
    notices = [producer.hello()]
    send(producer, 10, 20, 30)
    told = producer.due(100)
    assert told is not None
    notices.append(told)
    send(producer, 110)  # and it dies
    assert verdicts(notices, {0: 2, 100: 1}) == ["off", "unknown"], "the log has lost one"
    # The lake's rows are held to what it claims, whatever the producers told.
    lossy, *_ = judged(notices, {0: 3, 100: 1}, {0: 3, 100: 0})[1:]
    assert lossy.verdict == "off"
    assert lossy.reasons[0] == "the lake has 1 fewer than the log's that it claims"
    # A window that is not over can have a loss as well.
    tiers = Tiers(WINDOW_MS)
    for notice in notices:
        tiers.add(notice)
    late, running = tiers.judge("orders", {0: 3, 100: 1}, now_ms=150, lake={0: 3, 100: 0})
    assert (late.verdict, running.verdict) == ("balanced", "off")


def test_a_reader_that_is_behind_leaves_its_windows_open_and_owes_nothing_of_before_it_began() -> None:
    producer, reader = counting(), counting(tier="billing", name="b1")
    notices = [producer.hello(), reader.hello()]
    send(producer, 10, 20, 110, 120, 210, 220)
    for offset, time_ms in ((1, 20), (2, 110), (3, 120), (4, 210)):
        reader.consumed("orders", time_ms, 0, offset)
    notices += [producer.bye(230), reader.bye(230)]
    tiers = Tiers(WINDOW_MS)
    for notice in notices:
        tiers.add(notice)
    assert tiers.extents("billing", "orders") == {0: (1, 5)}
    log = {0: 2, 100: 2, 200: 2}
    reaches = {
        "billing": Reach({0: 1, 100: 2, 200: 1}, {200: 1}),
        "lake": Reach({0: 2, 100: 1}, {100: 1, 200: 2}),
    }
    found = tiers.judge("orders", log, now_ms=10_000, lake={0: 2, 100: 1}, reaches=reaches)
    assert [(one.verdict, one.reasons) for one in found] == [
        ("balanced", ("1 record from before billing began",)),
        ("open", ("lake has not come to 1 record yet",)),
        ("open", ("billing has not come to 1 record yet", "lake has not come to 2 records yet")),
    ]
    # One that it was handed and did not count, or counted twice, is no lag.
    reaches["billing"] = Reach({0: 1, 100: 1, 200: 2}, {200: 1})
    found = tiers.judge("orders", log, now_ms=10_000, lake={0: 2, 100: 1}, reaches=reaches)
    assert [one.verdict for one in found] == ["balanced", "off", "off"]


def test_a_reader_that_died_far_behind_leaves_what_it_read_last_unknown() -> None:
    producer, reader = counting(), counting(now_ms=5_000, tier="billing", name="b1")
    notices = [producer.hello(), reader.hello()]
    send(producer, 10, 110, 210)
    notices.append(producer.bye(220))
    reader.consumed("orders", 10, 0, 0)
    told = reader.due(5_100)
    assert told is not None
    reader.consumed("orders", 110, 0, 1)  # it dies before it tells
    again = counting(now_ms=5_200, tier="billing", name="b1", incarnation="2")
    again.consumed("orders", 210, 0, 2)
    notices += [told, again.hello(), again.bye(5_300)]
    # Up to offset 2 the tier has come by everything, by what is told.
    first, second, third = judged(notices, {0: 1, 100: 1, 200: 1})
    assert (first.verdict, third.verdict) == ("balanced", "balanced")
    assert (second.verdict, second.reasons) == ("unknown", ("billing b1 on web-3 ended without telling all",))


def test_what_the_log_has_no_more_is_unknown() -> None:
    producer = counting()
    notices = [producer.hello()]
    send(producer, 10, 20, 110, 210)
    notices.append(producer.bye(230))
    tiers = Tiers(WINDOW_MS)
    for notice in notices:
        tiers.add(notice)
    short = {0: 1, 100: 1, 200: 0}
    assert [one.verdict for one in tiers.judge("orders", short, now_ms=999)] == ["off", "balanced", "off"]
    gone = [Gone(150, "orders-0 has lost all before 1")]
    found = tiers.judge("orders", short, now_ms=999, gone=gone)
    assert [one.verdict for one in found] == ["unknown", "balanced", "off"]
    assert found[0].reasons == ("the log has 1 fewer than the producers: orders-0 has lost all before 1",)
    everywhere = tiers.judge("orders", short, now_ms=999, gone=[Gone(None, "compacted")])
    assert [one.verdict for one in everywhere] == ["unknown", "balanced", "unknown"]


def test_records_from_before_anybody_counted_are_not_held_against_those_who_do() -> None:
    producer = counting(now_ms=250)
    notices = [producer.hello()]
    send(producer, 260, 310)
    send(producer, 50)  # late, and counted all the same
    notices.append(producer.bye(350))
    log = {0: 1, 100: 5, 200: 3, 300: 1}
    assert verdicts(notices, log) == ["balanced", "unknown", "unknown", "balanced"]
    assert verdicts(notices, {**log, 300: 2}) == ["balanced", "unknown", "unknown", "off"]


def test_a_dead_producer_may_have_written_late_records_of_any_window() -> None:
    careful, dead = counting(), counting(now_ms=500, name="late")
    notices = [careful.hello(), dead.hello()]
    send(careful, 10)
    notices.append(careful.bye(1_000))
    send(dead, 20)
    (window,) = judged(notices, {0: 2})
    assert window.verdict == "unknown" and "late on web-3 ended without telling all" in window.reasons[0]
    assert verdicts([*notices, dead.bye(600)], {0: 3}) == ["off"]


def test_what_the_audit_topic_has_lost_is_unknown_and_what_follows_counts() -> None:
    producer = counting()
    notices = [producer.hello()]
    for begin in (0, 100, 200):
        send(producer, begin + 10)
        due = producer.due(begin + 105)
        assert due is not None
        notices.append(due)
    log = {0: 1, 100: 1, 200: 1}
    # The first two are deleted; the third was published at 205.
    for after_gone, expected in ((True, ["unknown", "balanced", "balanced"]), (False, ["unknown"] * 3)):
        tiers = Tiers(WINDOW_MS)
        tiers.forgotten_before_ms = 205
        for notice in notices[2:]:
            tiers.add(notice, after_gone=after_gone)
        found = tiers.judge("orders", log, now_ms=10_000)
        assert [one.verdict for one in found] == expected, found
        assert not after_gone or "may be deleted from the audit topic" in found[0].reasons[0]
    # A record too many in a window of which all is left.
    tiers = Tiers(WINDOW_MS)
    tiers.forgotten_before_ms = 205
    for notice in (*notices[2:], producer.bye(310)):
        tiers.add(notice, after_gone=True)
    assert [one.verdict for one in tiers.judge("orders", {100: 1, 200: 2}, now_ms=10_000)] == ["balanced", "off"]


def test_smaller_windows_are_added_up_and_others_are_unknown() -> None:
    half = Counting(member(name="half"), window_ms=WINDOW_MS // 2, now_ms=0, topics=("orders",))
    notices = [half.hello()]
    send(half, 10, 60, 110)
    notices.append(half.bye(130))
    assert verdicts(notices, {0: 2, 100: 1}) == ["balanced", "balanced"]
    odd = Counting(member(name="odd"), window_ms=70, now_ms=0, topics=("orders",))
    (first, _) = judged([*notices, odd.hello()], {0: 2, 100: 1})
    assert first.verdict == "unknown"
    assert first.reasons == ("producer odd on web-3 counts by windows of 70 ms, which do not fit",)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=60),
    st.integers(0, 2**32),
    st.data(),
)
def test_notices_in_any_order_and_twice_come_to_what_was_sent(
    steps: list[tuple[int, int]], seed: int, data: st.DataObject
) -> None:
    members = [counting(name=f"p{number}") for number in range(4)]
    notices = [one.hello() for one in members]
    log: dict[int, int] = {}
    now_ms = 0
    for who, later_ms in steps:
        now_ms += later_ms
        send(members[who], now_ms)
        log[now_ms // WINDOW_MS * WINDOW_MS] = log.get(now_ms // WINDOW_MS * WINDOW_MS, 0) + 1
        notices += [due for one in members if (due := one.due(now_ms)) is not None]
    notices += [one.bye(now_ms) for one in members]
    random = Random(seed)
    shuffled = [*notices, *random.choices(notices, k=5)]
    random.shuffle(shuffled)
    assert {one.verdict for one in judged(shuffled, log)} <= {"balanced"}
    # One that is lost may hide a count: nothing that it concerns is balanced that should not be.
    lost = data.draw(st.sampled_from([one for one in notices if one.counts] or [notices[0]]))
    left = [one for one in shuffled if one != lost]
    for window in judged(left, log):
        if window.begin_ms in {count.begin_ms for count in lost.counts}:
            assert window.verdict == "unknown"


def test_what_is_no_notice_is_refused() -> None:
    for value in (None, b"", b"{}", b"[]", b'{"version":1}'):
        with pytest.raises(NoticeError):
            decode(value)
    text = encode(counting().hello())
    with pytest.raises(NoticeError, match="version 2"):
        decode(text.replace(b'"version":1', b'"version":2'))
    with pytest.raises(NoticeError, match="windows of 0 ms"):
        decode(text.replace(b'"window_ms":100', b'"window_ms":0'))


def test_a_stamp_is_read_as_it_was_written_and_replaces_an_older_one() -> None:
    first = stamped([("mine", b"1"), ("mine", None)], Stamp(5, "host", "producer"))
    second = stamped(first, Stamp(6, "höst", "next"))
    assert second[:2] == [("mine", b"1"), ("mine", None)] and len(second) == 5
    assert stamp_of(second) == Stamp(6, "höst", "next")
    assert stamp_of(None) is None and stamp_of([("tidelog.audit.time", b"x")]) is None
