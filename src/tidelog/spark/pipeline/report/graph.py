"""Topics, flows and tables as a drawing. Each flow has rows of its own, so the way to its tables crosses no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.spark.pipeline.kinds.ingest import Ingest
from tidelog.spark.pipeline.report.facts import Facts, FlowFacts, TableFacts
from tidelog.spark.pipeline.report.figures import plural, size
from tidelog.spark.pipeline.report.grades import grade_of
from tidelog.spark.pipeline.report.markup import Markup, tag

ROW: Final = 58
NODE: Final = 42
WIDTHS: Final = {"topic": 170, "flow": 210, "table": 236}
GAP: Final = 90
TOPICS_MAX: Final = 6
HEAD: Final = 26


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.y + NODE / 2


class _Graph:
    def __init__(self) -> None:
        self.edges: list[Markup] = []
        self.nodes: list[Markup] = []

    def node(self, box: Box, name: str, sub: str, whole: str, state: str | None = None) -> None:
        parts = [
            tag("title", whole),
            tag("rect", x=box.x, y=box.y, width=box.width, height=NODE, rx=8, class_="node"),
            tag("text", _cut(name, box.width, 8.0), x=box.x + 12, y=box.y + 18, class_="name"),
            tag("text", _cut(sub, box.width, 5.9), x=box.x + 12, y=box.y + 33, class_="sub"),
        ]
        if state is not None:
            parts.append(tag("circle", cx=box.x + box.width - 14, cy=box.y + 14, r=4, class_=f"state {state}"))
        self.nodes.append(tag("g", *parts))

    def edge(self, start: Box, end: Box) -> None:
        x1, y1, x2, y2 = start.x + start.width, start.middle, end.x - 6, end.middle
        bend = max(20.0, min(60.0, (x2 - x1) / 2))
        way = f"M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        self.edges.append(tag("path", d=way, class_="edge"))
        self.edges.append(tag("path", d=f"M{x2:.1f} {y2 - 4:.1f}l7 4l-7 4z", class_="arrow"))


def draw(facts: Facts) -> tuple[Markup, int, int]:
    """The drawing's elements, its width and its height."""
    graph = _Graph()
    depths = _depths(facts)
    deepest = max(depths.values(), default=1)
    flow_x = [0.0] + [WIDTHS["topic"] + GAP + (WIDTHS["flow"] + GAP) * n for n in range(deepest)]
    table_x = flow_x[-1] + WIDTHS["flow"] + GAP
    row = 0
    topics: dict[str, Box] = {}
    flows: dict[str, Box] = {}
    for one in facts.flows:
        fresh = [name for name in topic_names(one) if name not in topics]
        written = one.flow.topics_written
        rows = max(1, len(fresh), len(one.tables) + len(written))
        box = Box(flow_x[depths[one.flow.name]], _y(row + (rows - 1) / 2), WIDTHS["flow"])
        flows[one.flow.name] = box
        grade, state = grade_of(facts, one)
        graph.node(box, one.flow.name, f"{one.kind}, {state}", f"{one.kind} flow {one.flow.name}", grade)
        for number, name in enumerate(fresh):
            topics[name] = Box(0, _y(row + (rows - len(fresh)) / 2 + number), WIDTHS["topic"])
            graph.node(topics[name], name, "topic" if not name.startswith("/") else "topics by pattern", name)
        for name in topic_names(one):
            graph.edge(topics[name], box)
        for name in one.flow.inputs:
            graph.edge(flows[name], box)
        ends = [(_folder(table), of_table(table), f"table {_folder(table)}") for table in one.tables]
        ends += [(topic, "topic, written", f"topic {topic}") for topic in written]
        for number, (name, sub, whole) in enumerate(ends):
            place = Box(table_x, _y(row + (rows - len(ends)) / 2 + number), WIDTHS["table"])
            graph.node(place, name, sub, whole)
            graph.edge(box, place)
        row += rows
    heads = [
        tag("text", name, x=x, y=12, class_="head")
        for name, x in (("TOPICS", 0.0), ("FLOWS", flow_x[1] if deepest else 0.0), (_written(facts), table_x))
    ]
    width, height = int(table_x + WIDTHS["table"] + 1), int(_y(row - 1) + NODE + 2)
    return tag("g", *heads, *graph.edges, *graph.nodes), width, height


def _written(facts: Facts) -> str:
    return "TABLES AND TOPICS" if any(one.flow.topics_written for one in facts.flows) else "TABLES"


def topic_names(one: FlowFacts) -> list[str]:
    flow = one.flow
    if not isinstance(flow, Ingest):
        return []
    if flow.pattern is not None:
        return [f"/{flow.pattern}/"]
    names = list(flow.topics[:TOPICS_MAX])
    return names if len(flow.topics) <= TOPICS_MAX else [*names[:-1], f"and {len(flow.topics) - TOPICS_MAX + 1} more"]


def of_table(table: TableFacts) -> str:
    kind = f"{table.aside}, " if table.aside else ""
    if table.found is None:
        return f"{kind}{table.table.format}, cannot be read"
    if not table.found.exists:
        return f"{kind}{table.table.format}, not there yet"
    return f"{kind}{table.table.format}, {plural(table.found.rows, 'row')}, {size(table.found.bytes)}"


def _depths(facts: Facts) -> dict[str, int]:
    depths: dict[str, int] = {}
    for one in facts.flows:  # a flow stands after those it reads
        depths[one.flow.name] = 1 + max((depths[name] for name in one.flow.inputs), default=0)
    return depths


def _folder(table: TableFacts) -> str:
    return table.table.path.rstrip("/").rsplit("/", 1)[-1]


def _y(row: float) -> float:
    return HEAD + row * ROW


def _cut(name: str, width: float, letter: float) -> str:
    most = int((width - 30) / letter)
    return name if len(name) <= most else name[: most - 1] + "…"
