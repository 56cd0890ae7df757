"""The audit tier by tier: what producers and consumers have told (tidelog.audit), beside the log and the table.

The order makes it fair here too: the time is taken and the notices are read before the audit fixes its bounds, so what
a producer says that it has written is in the log that is read after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidelog.audit.lives import Extent
from tidelog.audit.notices import AUDIT_TOPIC, LAKE
from tidelog.audit.reading import ReadTiers, read_tiers
from tidelog.audit.tiers import Gone, Reach, TierWindow
from tidelog.client.errors import MissingError
from tidelog.kernel.ports import Clock
from tidelog.spark.audit.log import PartitionLog, Reading
from tidelog.spark.audit.report import Report
from tidelog.spark.audit.tier_log import count_log
from tidelog.spark.audit.tier_report import TierReport
from tidelog.spark.client_config import Isolation
from tidelog.spark.link import Link
from tidelog.spark.pump import TopicChangedError


class Told(NamedTuple):
    """What was known before the audit began."""

    tiers: ReadTiers
    now_ms: int
    topic: str


def listen(link: Link, clock: Clock, *, window_ms: int, topic: str = AUDIT_TOPIC) -> Told:
    """Read the audit topic; to be called before `audit`, with the same window."""
    now_ms = clock.wall_ms()
    return Told(link.ask(lambda cluster: read_tiers(cluster, window_ms=window_ms, topic=topic)), now_ms, topic)


def with_tiers(
    link: Link,
    report: Report,
    told: Told,
    *,
    isolation: Isolation = "read_committed",
    created_anew: frozenset[str] = frozenset(),
) -> Report:
    """The report with its tiers."""
    how = Reading(isolation=isolation, window_ms=report.window_ms)
    windows: list[TierWindow] = []
    notes = [] if told.tiers.has_topic else [f"there is no topic {told.topic}: nobody has told anything"]
    if told.tiers.strangers:
        notes.append(f"{told.tiers.strangers} records of {told.topic} are no notices, and were left out")
    for topic in sorted({one.tally.topic for one in report.partitions} - {told.topic}):
        parts = [one for one in report.partitions if one.tally.topic == topic]
        if no_windows := [one for one in parts if one.no_windows]:
            notes.append(f"{topic}: not compared: {no_windows[0].no_windows}")
            continue
        try:
            found = _judged(link, report, told, topic, [one.log for one in parts], how, topic in created_anew)
        except (TopicChangedError, MissingError):
            notes.append(f"{topic}: not compared: it was deleted while it was read")
            continue
        since_ms = told.tiers.counting_since_ms(topic)
        kept = [one for one in found if not _is_before(one, since_ms, report.window_ms)]
        if len(kept) < len(found):
            notes.append(f"{topic}: {len(found) - len(kept)} windows from before a producer counted are left out")
        windows += kept
    return replace(report, tiers=TierReport(windows=windows, window_ms=report.window_ms, notes=notes))


def _judged(
    link: Link,
    report: Report,
    told: Told,
    topic: str,
    logs: Sequence[PartitionLog],
    how: Reading,
    is_anew: bool,
) -> list[TierWindow]:
    found = _judge(link, report, told, topic, logs, how, is_anew)
    if any(one.verdict == "off" for one in found):
        # A record that is older than the first of its batch does not show in the header.
        found = _judge(link, report, told, topic, logs, replace(how, every_time=True), is_anew)
    return found


def _judge(
    link: Link, report: Report, told: Told, topic: str, logs: Sequence[PartitionLog], how: Reading, is_anew: bool
) -> list[TierWindow]:
    tiers = told.tiers
    readers: dict[str, Mapping[int, Extent]] = {
        tier: extents for tier in tiers.readers(topic) if (extents := tiers.extents(tier, topic)) is not None
    }
    log = count_log(link, logs, readers.values(), how)
    if is_anew:
        log.gone.append(Gone(None, "the topic was deleted and created again"))
    flow = {one.stretch.partition: Extent(one.stretch.start, one.stretch.end) for one in logs}
    reaches = {tier: log.reach(extents) for tier, extents in readers.items()}
    ours = [one for one in report.windows if one.topic == topic]
    # The table was compared with what the audit had read; the log may have lost some of it since.
    reaches[LAKE] = Reach({one.begin_ms: one.records for one in ours}, log.reach(flow).ahead)
    lake = {one.begin_ms: one.rows for one in ours}
    return tiers.judge(topic, log.windows(), now_ms=told.now_ms, lake=lake, reaches=reaches, gone=log.gone)


def _is_before(window: TierWindow, since_ms: int | None, window_ms: int) -> bool:
    """Records that nobody counted, from before the first producer that counts."""
    return (
        window.verdict == "unknown"
        and since_ms is not None
        and window.begin_ms + window_ms <= since_ms
        and not window.counts["producer"]
    )
