"""The head of a report in words and figures: when, how long, how it went."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.spark.pipeline.history import REPROCESSED
from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.report.facts import Facts, Grade
from tidelog.spark.pipeline.report.figures import count, moment, plural, short, span
from tidelog.spark.pipeline.report.grades import grade_of
from tidelog.spark.pipeline.status import headline

BAD: Final = ("failed", "given up")


def when(facts: Facts) -> str:
    begin, end = facts.begin_ms, facts.end_ms
    same_day = moment(begin, "%Y-%m-%d") == moment(end, "%Y-%m-%d")
    until = moment(end, "%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")
    return f"{moment(begin)} to {until} UTC, {span(end - begin)}"


def proof(facts: Facts) -> str:
    """The audits in a sentence each."""
    return " ".join(f"{one.flow}: {one.report.summary()}." for one in facts.audits if one.report is not None)


def condition(facts: Facts) -> tuple[Grade, str]:
    """Of the run, beside the verdict on its tables."""
    run, given_up = facts.status.run, sum(grade_of(facts, one)[1] == "given up" for one in facts.flows)
    if given_up:
        return "bad", f"{plural(given_up, 'flow')} given up"
    if facts.died:
        return "bad", "died"
    if facts.status.alive:
        return "good", "running"
    if run is None:
        return "warn", "not run yet"
    return ("good", "ended") if run.code == 0 else ("bad", f"ended with exit code {run.code}")


def how(facts: Facts) -> str:
    starts = max(1, sum(mark.what == "started" for mark in facts.runs))
    return f"{plural(starts, 'run')}; {headline(facts.status, facts.now_ms)}"


def tiles(facts: Facts) -> list[tuple[str, str]]:
    """(figure, what it is)."""
    ingests = [one for one in facts.flows if isinstance(one.flow, Ingest)]
    landed = [table.found.rows for one in ingests for table in one.tables if table.found is not None]
    samples = [sample for one in facts.flows for sample in one.samples]
    rows, busy_ms = sum(sample.rows for sample in samples), sum(sample.busy_ms for sample in samples)
    lags = [
        one.state.progress.lag_records for one in ingests if one.state is not None and one.state.progress is not None
    ]
    known = [lag for lag in lags if lag is not None]
    late = [one.state.late for one in facts.flows if one.state is not None and one.state.late is not None]
    died = sum(mark.what == "died" for mark in facts.runs)
    failed = sum(mark.what in BAD for one in facts.flows for mark in one.marks)
    found = [(count(sum(landed)), "records in the lake")] if ingests else []
    found += [(short(rows * 1000 / busy_ms) if busy_ms else "–", "rows/s while busy")]
    found += [(count(sum(known)), "records behind")] if known else []
    found += [(count(sum(late)), "late rows, kept")] if late else []
    dead = sum(sum(reasons.values()) for reasons in facts.reasons().values())
    found += [(count(dead), "dead letters")] if dead else []
    aside = [one.state.aside for one in facts.flows if one.state is not None]
    for name in dict.fromkeys(name for counted in aside for name in counted):
        found.append((count(sum(counted.get(name, 0) for counted in aside)), name))
    return [*found, (count(failed), "failures of flows"), (count(died), "runs that died")]


class Incident(NamedTuple):
    at_ms: int
    until_ms: int
    flow: str  # nothing: the run as a whole
    what: str
    text: str
    bad: bool
    times: int = 1


def incidents(facts: Facts) -> list[Incident]:
    """Of the run and of all flows, in their order. A flow that fails again and again in the same way is one line, and
    that it was started again after each is not said."""
    found = [
        Incident(mark.at_ms, mark.at_ms, "", f"run {mark.what}", mark.text, mark.what == "died") for mark in facts.runs
    ]
    for one in facts.flows:
        row: list[Incident] = []
        for mark in one.marks:
            if mark.what not in (*BAD, REPROCESSED):
                continue
            fresh = Incident(mark.at_ms, mark.at_ms, one.flow.name, mark.what, mark.text, mark.what in BAD)
            if row and (row[-1].what, row[-1].text) == (fresh.what, fresh.text):
                row[-1] = row[-1]._replace(until_ms=fresh.at_ms, times=row[-1].times + 1)
            else:
                row.append(fresh)
        found += row
    return sorted(found)
