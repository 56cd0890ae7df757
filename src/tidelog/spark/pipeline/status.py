"""The state of a pipeline for people: a table in plain text, or live in a terminal; and for programs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from tidelog.spark.pipeline.durations import show_ms
from tidelog.spark.pipeline.progress import Progress
from tidelog.spark.pipeline.state import FlowState, Status

COLUMNS: Final = (
    "FLOW",
    "KIND",
    "STATE",
    "BATCH",
    "ROWS/S",
    "ROWS",
    "LAG",
    "LAG TIME",
    "WATERMARK",
    "LATE",
    "ASIDE",
    "DEAD",
    "RETRYING",
    "RESTARTS",
)
OPTIONAL: Final = ("DEAD", "RETRYING")
"""Shown where a flow has them."""
_SILENT_MS: Final = 15_000


def headline(status: Status, now_ms: int) -> str:
    run = status.run
    if run is None:
        return "it has not been run yet" if not status.alive else "it is starting"
    since = f"pid {run.pid}, started {_ago(now_ms - run.started_ms)} ago"
    if not status.alive:
        if run.ended_ms is None:
            seen = _ago(now_ms - run.seen_ms)
            return f"it died ({since}; last seen {seen} ago): run it again, it goes on from its checkpoints"
        return f"it ended {_ago(now_ms - run.ended_ms)} ago with exit code {run.code} ({since})"
    silent_ms = now_ms - run.seen_ms
    silent = f"; has not looked at its flows for {_ago(silent_ms)}" if silent_ms > _SILENT_MS else ""
    return f"it runs ({since}){silent}"


def rows(status: Status, now_ms: int) -> list[tuple[str, ...]]:
    died = not status.alive and status.run is not None and status.run.ended_ms is None
    return [_row(flow, died, now_ms) for flow in status.flows]


def errors(status: Status, now_ms: int) -> list[str]:
    return [
        f"{flow.flow}: {_when(flow, now_ms)}{flow.last_error}" for flow in status.flows if flow.last_error is not None
    ]


def lag_ms(flow: FlowState, now_ms: int) -> int | None:
    return None if flow.progress is None else lag_of(flow.progress, now_ms)


def lag_of(progress: Progress, now_ms: int) -> int | None:
    """How old the newest record is that the flow has read, as long as there are others behind it."""
    if progress.lag_records is None:
        return None
    if progress.lag_records == 0:
        return 0
    return None if progress.newest_ms is None else max(0, now_ms - progress.newest_ms)


def as_json(name: str, status: Status, now_ms: int) -> dict[str, Any]:
    flows = [{**msgspec.to_builtins(flow), "lag_ms": lag_ms(flow, now_ms)} for flow in status.flows]
    return {"pipeline": name, "alive": status.alive, "run": msgspec.to_builtins(status.run), "flows": flows}


def text(name: str, status: Status, now_ms: int) -> str:
    table = _shown(rows(status, now_ms))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [f"{name}: {headline(status, now_ms)}"]
    if status.flows:
        lines += ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in table]
    lines += [f"! {error}" for error in errors(status, now_ms)]
    return "\n".join(lines)


def watch(name: str, read: Callable[[], Status], now_ms: Callable[[], int], wait: Callable[[], bool]) -> None:
    """Live, until `wait` says that it is enough."""
    from rich.live import Live

    with Live(render(name, read(), now_ms()), auto_refresh=False) as live:
        while wait():
            live.update(render(name, read(), now_ms()), refresh=True)


def render(name: str, status: Status, now_ms: int) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    columns, *found = _shown(rows(status, now_ms))
    for column in columns:
        table.add_column(column, no_wrap=True, justify="left" if column in ("FLOW", "KIND", "STATE") else "right")
    for row in found:
        style = {"running": "green", "done": "green", "given up": "red"}.get(row[2], "yellow")
        table.add_row(row[0], row[1], Text(row[2], style), *row[3:])
    lines = [Text(f"! {error}", "red") for error in errors(status, now_ms)]
    return Group(Text(f"{name}: {headline(status, now_ms)}", "bold" if status.alive else "bold red"), table, *lines)


def _shown(found: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """With their heads, without optional columns that say nothing."""
    kept = [
        index for index, name in enumerate(COLUMNS) if name not in OPTIONAL or any(row[index] != "-" for row in found)
    ]
    return [tuple(row[index] for index in kept) for row in (COLUMNS, *found)]


def _row(flow: FlowState, died: bool, now_ms: int) -> tuple[str, ...]:
    progress = flow.progress
    ended = flow.phase in ("stopped", "done", "given up")
    lag = lag_ms(flow, now_ms)
    return (
        flow.flow,
        flow.kind,
        f"{flow.phase} (died)" if died and not ended else flow.phase,
        "-" if progress is None else str(progress.batch),
        "-" if progress is None else f"{progress.processed_rows_per_s:,.0f}",
        _number(flow.rows),
        _number(None if progress is None else progress.lag_records),
        "-" if lag is None else _ago(lag),
        "-" if flow.watermark_ms is None else _time(flow.watermark_ms),
        _number(flow.late),
        ", ".join(f"{name} {number:,}" for name, number in flow.aside.items()) or "-",
        _number(None if flow.dead is None else sum(flow.dead.values())),
        _number(flow.retrying),
        str(flow.restarts),
    )


def _when(flow: FlowState, now_ms: int) -> str:
    return "" if flow.last_error_ms is None else f"{_ago(now_ms - flow.last_error_ms)} ago: "


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _ago(ms: int) -> str:
    """In the two largest units at most."""
    seconds = max(0, ms) // 1000
    if seconds >= 86_400:
        return show_ms(seconds // 3600 * 3_600_000)
    return show_ms((seconds // 60 * 60 if seconds >= 3600 else seconds) * 1000)


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # a producer's clock may say anything
        return f"{ms}ms"
