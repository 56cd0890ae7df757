"""The page: one file, no network, no scripts."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from tidelog.spark.pipeline.report import charts, flow_charts, graph, style, summary
from tidelog.spark.pipeline.report.audits import audit
from tidelog.spark.pipeline.report.facts import Facts, FlowFacts
from tidelog.spark.pipeline.report.figures import count, moment, plural, size
from tidelog.spark.pipeline.report.grades import grade_of
from tidelog.spark.pipeline.report.letters import letters
from tidelog.spark.pipeline.report.markup import Markup, join, tag
from tidelog.spark.pipeline.report.tables import Cell, table

INCIDENTS_MAX: Final = 200


def page(facts: Facts) -> str:
    name = facts.pipeline.name
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("title", f"{name}: report of a pipeline"),
        tag("style", Markup(style.page())),
    )
    body = tag("body", tag("main", _head(facts), _graph(facts), *_sections(facts), _foot(facts)))
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


def _head(facts: Facts) -> Markup:
    grade, verdict = facts.verdict()
    health, state = summary.condition(facts)
    tiles = [tag("div", tag("b", figure), tag("span", what), class_="tile") for figure, what in summary.tiles(facts)]
    return join(
        tag(
            "header",
            tag("h1", facts.pipeline.name),
            tag("span", verdict, class_=f"verdict {grade}"),
            tag("span", state, class_=f"verdict {health}"),
        ),
        tag("p", summary.when(facts), class_="soft"),
        tag("p", summary.how(facts), class_="soft small"),
        tag("div", *tiles, class_="tiles"),
    )


def _graph(facts: Facts) -> Markup:
    drawn, width, height = graph.draw(facts)
    svg = tag("svg", drawn, viewBox=f"-1 0 {width + 1} {height}", width=width, class_="graph", role="img")
    return join(tag("h2", "From topics to tables"), tag("div", svg, class_="card"))


def _sections(facts: Facts) -> list[Markup]:
    """First whether it is right, then how it went."""
    return [
        _audits(facts),
        join(letters(facts)),
        join(_key(facts)),
        *(_flow(facts, one) for one in facts.flows),
        _incidents(facts),
        _tables(facts),
    ]


def _flow(facts: Facts, one: FlowFacts) -> Markup:
    grade, state = grade_of(facts, one)
    title = tag(
        "h2",
        one.flow.name,
        " ",
        tag("span", one.kind, class_="soft small"),
        " ",
        tag("span", state, class_=f"badge {grade}"),
    )
    last = one.state and one.state.last_error
    error = tag("p", f"Last error: {last}", class_="error") if last else None
    drawn = flow_charts.charts_of(facts, one)
    if not drawn:
        return join(title, error, tag("p", "Nothing was measured of it yet.", class_="soft"))
    events = flow_charts.events_of(facts, one)
    cards = [
        tag(
            "div",
            tag("div", tag("h3", chart.title), tag("span", chart.note), class_="chart-head"),
            charts.draw(chart, facts.begin_ms, facts.end_ms, events),
            class_="card",
        )
        for chart in drawn
    ]
    return join(title, error, tag("div", *cards, class_="charts"))


def _key(facts: Facts) -> Markup | None:
    """What the signs in the charts mean, once."""
    found = {event.bad for one in facts.flows for event in flow_charts.events_of(facts, one)}
    signs = [(True, "bad", "the run died, or the flow failed"), (False, "good", "the run started again")]
    shown = [
        tag("span", tag("b", "▼", class_=kind), f" {words}", class_="soft small")
        for bad, kind, words in signs
        if bad in found
    ]
    return tag("p", *shown, class_="key") if shown else None


def _incidents(facts: Facts) -> Markup:
    found = summary.incidents(facts)
    shown = found[-INCIDENTS_MAX:]
    rows = [
        [
            Cell(_time(one), "time"),
            Cell(one.flow or "the pipeline", "nowrap"),
            Cell(join(tag("span", one.what, class_="badge bad") if one.bad else one.what, _times(one.times)), "nowrap"),
            Cell(one.text),
        ]
        for one in shown
    ]
    if not rows:
        return join()
    left_out = len(found) - len(shown)
    more = tag("p", f"{plural(left_out, 'earlier line')} left out.", class_="soft small") if left_out else None
    listed = tag("div", table(("Time (UTC)", "Flow", "What", ""), rows), more, class_="card")
    return join(tag("h2", "Starts, stops and errors"), listed)


def _time(one: summary.Incident) -> str:
    return moment(one.at_ms) + (f" to {moment(one.until_ms, '%H:%M:%S')}" if one.times > 1 else "")


def _times(number: int) -> str | None:
    return None if number == 1 else f" {number} times"


def _audits(facts: Facts) -> Markup:
    title = tag("h2", "Audit")
    if not facts.checked:
        return join(title, tag("p", "It was not asked for.", class_="soft"))
    what = (
        "Records in the broker’s log against rows in the tables’ files: by topic, partition and offset where rows have "
        "them, else by computing the flow anew from the log."
    )
    return join(title, tag("p", what, class_="soft small"), *(audit(one) for one in facts.audits))


def _tables(facts: Facts) -> Markup:
    rows = []
    for one in facts.flows:
        for found in one.tables:
            about, what = found.found, found.table.format
            place = join(tag("code", found.table.path), f" {found.error}" if found.error else None)
            numbers = (
                (count(about.rows), count(about.files), size(about.bytes))
                if about is not None and about.exists
                else ("–",) * 3
            )
            kind = "late rows" if found.aside == "late" else found.aside or "rows"
            rows.append([Cell(one.flow.name), Cell(kind), Cell(what), *(Cell(n, "num") for n in numbers), Cell(place)])
    heads = ("Flow", "Holds", "Format", "Rows", "Files", "Size", "Where")
    return join(tag("h2", "Tables"), tag("div", table(heads, rows), class_="card"))


def _foot(facts: Facts) -> Markup:
    return tag("footer", f"Made by Tidelog {version('tidelog')} at {moment(facts.now_ms)} UTC. All times are UTC.")
