"""Every row of `./dev bench node`, in the order in which it is measured and shown."""

from __future__ import annotations

from bench import rows_consume, rows_floor, rows_latency, rows_life, rows_produce, rows_transactions
from bench.row import Row

OURS_ALONE = ("partitions", "compression")

_PRODUCE = {row.name: row for row in rows_produce.ROWS}

ROWS: tuple[Row, ...] = (
    *(row for row in rows_produce.ROWS if row.name not in OURS_ALONE),
    *rows_consume.ROWS,
    *rows_latency.ROWS,
    *rows_transactions.ROWS,
    *rows_life.ROWS,
    *rows_floor.ROWS,
    *(_PRODUCE[name] for name in OURS_ALONE),
)


def chosen(names: str | None) -> list[Row]:
    """The rows with these names, or whose names begin so; all of them for None."""
    if names is None:
        return list(ROWS)
    found = []
    for name in names.split(","):
        matching = [row for row in ROWS if row.name == name] or [row for row in ROWS if row.name.startswith(name)]
        if not matching:
            raise SystemExit(f"there is no row {name}; there are {', '.join(row.name for row in ROWS)}")
        found += [row for row in matching if row not in found]
    return found
