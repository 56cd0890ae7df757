"""The audit: bounds first, then the log, then the table, then the log's end. The order is what makes it fair.

1. The bounds are fixed before anything is read: a flow's checkpointed offsets, or the log's last stable offsets.
2. The log is read up to the bounds. Retention and the cleaner only take away, so what is found now was there when a
   flow read it; what goes while it is read leaves the scope.
3. The table, and every other outlet, is read after the log: what was committed before the bounds were given is there.
4. The log's end is asked last, so that no row of a flow that runs on lies behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidelog.client.errors import MissingError
from tidelog.spark.audit.compare import Tally, compare
from tidelog.spark.audit.coverage import BOUNDARIES_MAX, DELETED, OUTLETS_MAX, OUTSIDE, SCOPE, Coverage
from tidelog.spark.audit.errors import AuditError
from tidelog.spark.audit.lake import LakeCounts, Outlet, Table, read_lake
from tidelog.spark.audit.log import PartitionLog, Progress, Reading, Stretch, read_partition
from tidelog.spark.audit.ranges import ranges
from tidelog.spark.audit.report import PartitionReport, Report, Window
from tidelog.spark.audit.text import counted
from tidelog.spark.audit.windows import HOUR_MS
from tidelog.spark.client_config import LEVELS, Isolation
from tidelog.spark.link import At, Link
from tidelog.spark.pump import TopicChangedError

_GONE: Final = "the log has no such topic"
_ANEW: Final = "it was deleted and created again since: the log that it was read from is gone"


def audit(
    link: Link,
    outlets: Table | Sequence[Outlet],
    topics: Iterable[str],
    *,
    starts: Mapping[At, int] | None = None,
    ends: Mapping[At, int] | None = None,
    topic_ids: Mapping[str, str] | None = None,
    created_anew: Collection[str] = (),
    isolation: Isolation = "read_committed",
    window_ms: int = HOUR_MS,
    boundaries_max: int = BOUNDARIES_MAX,
    progress: Progress | None = None,
) -> Report:
    """Compare the log with the table, or with all outlets of a flow: every record must be in one of them, once.

    A record that goes from one outlet to another while they are read is seen in both or in neither: of a flow that runs
    and moves records (retrying), look again before you believe it.
    `starts` and `ends` bound the offsets (the end is not included) of each (topic, partition). Without `starts` the log
    is compared from its start on; without `ends` up to what readers can read now. With `ends`, a partition that they do
    not name is not judged: the flow does not know it yet.
    `topic_ids` are those that the bounds are of: another id now means that nothing can be proved.
    `created_anew`: topics whose earlier life may be in the table as well. Their rows are told apart by time, record by
    record, which decodes the whole log.
    """
    if isolation not in LEVELS:
        raise AuditError(f"isolation={isolation!r}: expected {' or '.join(LEVELS)}")
    if window_ms < 1:
        raise AuditError(f"window_ms={window_ms}: expected a number of ms from 1 on")
    places_of_rows = list(outlets) if isinstance(outlets, Sequence) else [Outlet("lake", outlets)]
    if not 1 <= len(places_of_rows) <= OUTLETS_MAX:
        raise AuditError(f"{len(places_of_rows)} outlets: expected 1 to {OUTLETS_MAX}")
    tell = progress or (lambda _: None)
    names = sorted(set(topics))
    how = Reading(isolation=isolation, window_ms=window_ms)
    unknown: dict[str, str] = {}
    stretches = _stretches(link, names, starts, ends, topic_ids, isolation, unknown)
    with Coverage(boundaries_max=boundaries_max) as coverage:
        logs: list[PartitionLog] = []
        for stretch in stretches:
            if stretch.topic in unknown:
                continue
            tell(f"reading {stretch.topic}-{stretch.partition} from {stretch.start} to {stretch.end}")
            one = replace(how, every_record=stretch.topic in created_anew)
            try:
                logs.append(read_partition(link, stretch, one, coverage, len(logs), tell))
            except (TopicChangedError, MissingError) as error:
                unknown[stretch.topic] = _ANEW if isinstance(error, TopicChangedError) else _GONE
                logs.append(PartitionLog(stretch, ranges(), ranges(), ranges()))
        places = [(one.stretch.topic, one.stretch.partition) for one in logs]
        lake = read_lake(places_of_rows, dict(zip(places, enumerate(logs), strict=True)), coverage, window_ms, tell)
        _add_areas(link, coverage, logs, unknown, isolation)
        tallies = compare(coverage.segments(), places, outlets=len(places_of_rows))
    reports = _reports(link, logs, tallies, lake, how)
    return Report(
        partitions=[one for one in reports if one.tally.topic not in unknown],
        windows=_windows(reports, lake, unknown),
        window_ms=window_ms,
        outlets=tuple(one.name for one in places_of_rows),
        unknown=unknown,
        table_rows=lake.rows,
        other_rows=lake.other_topics,
    )


def _stretches(
    link: Link,
    names: list[str],
    starts: Mapping[At, int] | None,
    ends: Mapping[At, int] | None,
    topic_ids: Mapping[str, str] | None,
    isolation: Isolation,
    unknown: dict[str, str],
) -> list[Stretch]:
    existing = link.existing(names)
    unknown.update({name: _GONE for name in names if name not in existing})
    ids = link.topic_ids(existing)
    for name, wanted in (topic_ids or {}).items():
        if name in ids and ids[name] != wanted:
            unknown[name] = _ANEW
    places = [(name, number) for name, numbers in existing.items() if name not in unknown for number in numbers]
    earliest, stable = link.earliest(places), link.latest(places, isolation)
    log_ends = link.latest(places, "read_uncommitted")
    stretches = []
    for at in places:
        start = max(earliest[at], (starts or {}).get(at, 0))
        claimed = stable[at] if ends is None else ends.get(at, start)
        stretches.append(
            Stretch(
                topic=at[0],
                partition=at[1],
                log_start=earliest[at],
                start=start,
                end=max(start, min(stable[at], claimed)),
                stable_end=stable[at],
                log_end=log_ends[at],
                claimed=claimed,
                topic_id=ids.get(at[0]),
            )
        )
    return stretches


def _add_areas(
    link: Link, coverage: Coverage, logs: list[PartitionLog], unknown: dict[str, str], isolation: Isolation
) -> None:
    """Tell the coverage what is to be judged, and what may be there without being judged."""
    places = [(one.stretch.topic, one.stretch.partition) for one in logs if one.stretch.topic not in unknown]
    ids = link.topic_ids(link.existing({topic for topic, _ in places}))
    for one in logs:
        topic, topic_id = one.stretch.topic, one.stretch.topic_id
        if topic_id is not None and ids.get(topic) != topic_id:
            unknown.setdefault(topic, _ANEW)
    ends = link.latest([at for at in places if at[0] not in unknown], "read_uncommitted")
    for index, one in enumerate(logs):
        stretch = one.stretch
        coverage.add(SCOPE, index, *one.scope)
        coverage.add(DELETED, index, *one.deleted)
        log_end = ends.get((stretch.topic, stretch.partition), stretch.end)
        coverage.add(OUTSIDE, index, *ranges((stretch.log_start, stretch.start), (stretch.end, log_end)))


def _reports(
    link: Link, logs: list[PartitionLog], tallies: list[Tally], lake: LakeCounts, how: Reading
) -> list[PartitionReport]:
    """With windows counted again, record by record, where headers did not agree though all offsets are there."""
    reports = []
    for index, (log, tally) in enumerate(zip(logs, tallies, strict=True)):
        no_windows = "" if log.gaps is not None else "the cleaner has left too many gaps"
        if lake.untimed[index] and not no_windows:
            no_windows = f"{counted(lake.untimed[index], 'row')} without a time"
        if not no_windows and tally.is_balanced and log.windows != lake.windows[index].counts:
            again = _read_again(link, log, how)
            if again is None:
                no_windows = "the log changed while it was read"
            else:
                log.windows = again
        reports.append(PartitionReport(log, tally, lake.earlier[index], no_windows))
    return reports


def _read_again(link: Link, log: PartitionLog, how: Reading) -> Counter[int] | None:
    """None when the log is no longer what was compared."""
    try:
        again = read_partition(link, log.stretch, replace(how, every_time=True))
    except (TopicChangedError, MissingError):
        return None
    is_same = (
        again.scope.pairs() == log.scope.pairs() and again.gaps is not None and log.gaps is not None
    ) and again.gaps.pairs() == log.gaps.pairs()
    return again.windows if is_same else None


def _windows(reports: list[PartitionReport], lake: LakeCounts, unknown: Mapping[str, str]) -> list[Window]:
    records: dict[str, Counter[int]] = {}
    rows: dict[str, Counter[int]] = {}
    for index, one in enumerate(reports):
        topic = one.tally.topic
        if not one.no_windows and topic not in unknown:
            records.setdefault(topic, Counter()).update(one.log.windows)
            rows.setdefault(topic, Counter()).update(lake.windows[index].counts)
    return [
        Window(topic, begin, records[topic][begin], rows[topic][begin])
        for topic in sorted(records)
        for begin in sorted(records[topic].keys() | rows[topic].keys())
    ]
