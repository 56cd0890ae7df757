"""The bench's figures as text: what is to be reached and whether it was, then every row with its spread.

`write_into` puts the same text between two marks of a page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.catalogue import ROWS
from bench.results import Results, summary
from bench.row import Row, Target

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"

UNITS = {
    "records_per_s": "records/s",
    "commits_per_s": "commits/s",
    "mb_per_s": "MB/s",
    "user_s_per_gb": "user s/GB",
    "system_s_per_gb": "system s/GB",
    "total_s_per_gb": "CPU s/GB",
    "user_us_per_record": "user µs/record",
    "system_us_per_record": "system µs/record",
    "total_us_per_record": "CPU µs/record",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p999_ms": "p99.9 ms",
    "client_cores": "client's cores",
    "disk_bytes_per_record": "bytes on disk/record",
    "start_s": "start to first ack, s",
    "idle_mb": "private MB, idle",
    "loaded_mb": "private MB, after 1 GB",
}


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def verdict(ratio: float, target: Target) -> str:
    def reached(wanted: float) -> bool:
        return ratio >= wanted if target.higher_is_better else ratio <= wanted

    if target.aim is not None and reached(target.aim):
        return "aim met"
    if target.bound is None:
        return "reported"
    if reached(target.bound):
        return "met"
    return f"**missed** by {abs(ratio / target.bound - 1) * 100:.0f} %"


def _aligned(head: list[str], lines: list[list[str]]) -> str:
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]

    def shown(line: list[str]) -> str:
        cells = [
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        return f"| {' | '.join(cells)} |"

    rule = [("-" * width if place == 0 else "-" * (width - 1) + ":") for place, width in enumerate(widths)]
    return "\n".join([shown(head), f"| {' | '.join(rule)} |", *map(shown, lines)])


def _wanted(value: float | None, target: Target) -> str:
    return "" if value is None else f"{'≥' if target.higher_is_better else '≤'} {value:g}"


def targets(results: Results) -> str:
    """A line per target that could be computed."""
    lines = []
    for row in ROWS:
        found = results["rows"].get(row.name)
        for target in row.targets if found else ():
            ours = summary(found, target.metric, target.of, target.point)
            point = target.point if target.over_point is None else target.over_point
            theirs = summary(found, target.metric, target.over, point)
            if ours is None or theirs is None or not theirs.median:
                continue
            ratio = ours.median / theirs.median
            bound, aim = _wanted(target.bound, target), _wanted(target.aim, target)
            line = [_label(row, target), number(ours.median), number(theirs.median), f"{ratio:.2f}"]
            lines.append([*line, bound, aim, verdict(ratio, target)])
    head = ["", "Tidelog", "compared with", "ratio", "at least", "aim", ""]
    return _aligned(head, lines) if lines else "Nothing to compare: Apache Kafka was not measured."


def _label(row: Row, target: Target) -> str:
    name = _at(row, row.title, target.point)
    if target.over != "apache":
        name += f" (against {_at(row, target.over, target.over_point or '')})"
    return f"{name}: {UNITS[target.metric]}"


def _at(row: Row, name: str, point: str) -> str:
    """`ping, 5 consumers`, `ping, 1 consumer`, or the name alone for a row without points."""
    kind = row.point_is.removesuffix("s") if point == "1" else row.point_is
    return f"{name}, {point} {kind}".rstrip() if point else name


def figures(row: Row, found: dict[str, Any]) -> str:
    """Every side and point of a row: medians, with the spread of the first figure."""
    shown = [metric for metric in row.shows if any(metric in run for runs in found["cells"].values() for run in runs)]
    lines = []
    for point in row.points:
        for side in row.sides:
            values = [summary(found, metric, side.label, point) for metric in shown]
            if values and values[0] is not None:
                texts = [number(value.median) if value else "" for value in values]
                lines.append([_at(row, side.label, point), texts[0], f"± {values[0].spread * 100:.0f} %", *texts[1:]])
    facts = (
        f"{found['runs']} runs of {found['size']}, client: {found['client']}, commit {found['commit']}, {found['when']}"
    )
    if stolen := [run["stolen_cores"] for runs in found["cells"].values() for run in runs if "stolen_cores" in run]:
        facts += f", {sum(stolen) / len(stolen):.2f} cores taken by the host"
    if repeated := found.get("repeated"):
        facts += f", {repeated} disturbed turns repeated"
    parts = [f"**{row.title}** (`{row.name}`; {facts})"]
    if lines:
        units = [UNITS[metric] for metric in shown]
        parts.append(_aligned(["", units[0], "spread", *units[1:]], lines))
    parts += [f"{key}: failed: {text}" for key, text in found.get("errors", {}).items()]
    return "\n\n".join(parts)


def render(results: Results) -> str:
    machine = results["machine"]
    hardware = f"{machine.get('processor')}, {machine.get('cores')} cores, {machine.get('memory_gb')} GB"
    software = f"{machine.get('system')}; Python {machine.get('python')}; {machine.get('apache', 'no Apache Kafka')}"
    parts = [f"{hardware}; {software}."]
    if any(found.get("quick") for found in results["rows"].values()):
        parts.append(
            "**Rows of a quick run are among these: they show that the bench works, not how fast anything is.**"
        )
    parts.append(targets(results))
    parts += [figures(row, results["rows"][row.name]) for row in ROWS if row.name in results["rows"]]
    return "\n\n".join(parts)


def write_into(page: Path, results: Results) -> None:
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} lacks the marks {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{render(results)}\n\n{END}{after}")
