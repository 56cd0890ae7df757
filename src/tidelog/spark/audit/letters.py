"""A dead-letter or retry topic as an outlet: its records say in headers which record of the log each of them was.

The names are Connect's, with a few of our own; values are UTF-8 text. A record of another flow is left out, and so is
one that does not say where it comes from: the record that it was then counts as missing, as it must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.link import At, Link

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC: Final = "__connect.errors.topic"
PARTITION: Final = "__connect.errors.partition"
OFFSET: Final = "__connect.errors.offset"
EXCEPTION: Final = "__connect.errors.exception.class.name"
FLOW: Final = "tidelog.flow"
REASON: Final = "tidelog.reason"
TIMESTAMP: Final = "tidelog.timestamp"
"""Of the record in the log, in ms since 1970; without it rows have no time, and windows are not compared."""
_NUMBER: Final = r"^[0-9]{1,18}$"


class Letters:
    """`rows()` for `Outlet`: coordinates of what the flow has put into the topic, as read_committed sees it now.

    `starts`: only from these offsets of the topic on. `keep`: which records of a batch count, among the flow's. A topic
    that is not there has no rows.
    """

    def __init__(
        self,
        link: Link,
        topic: str,
        flow: str,
        *,
        starts: Mapping[At, int] | None = None,
        keep: Callable[[pa.RecordBatch, Headers], Any] | None = None,
    ) -> None:
        self._link = link
        self._topic = topic
        self._flow = flow
        self._starts = starts or {}
        self._keep = keep

    def rows(self) -> Iterator[pa.RecordBatch]:
        for headers in self._chosen():
            yield _coordinates(headers)

    def reasons(self) -> dict[str, int]:
        """How many letters the flow has written for each reason: our header, else the exception's class."""
        found: dict[str, int] = {}
        for headers in self._chosen():
            for one in _first_text(headers, (REASON, EXCEPTION)).value_counts():
                name = one["values"].as_py() or "no reason given"
                found[name] = found.get(name, 0) + one["counts"].as_py()
        return found

    def _chosen(self) -> Iterator[Headers]:
        import pyarrow.compute as pc

        for batch in self.batches():
            headers = Headers(batch.column("headers"))
            ours = headers.equal(FLOW, self._flow)
            if self._keep is not None:
                ours = pc.and_(ours, self._keep(batch, headers))
            yield Headers(batch.filter(ours).column("headers"))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records as the source gives them, headers and all, of every flow."""
        from tidelog.spark.source.rows import read_through
        from tidelog.spark.source.task import Task

        numbers = self._link.existing([self._topic]).get(self._topic, [])
        places = [(self._topic, number) for number in numbers]
        starts, ends = self._link.earliest(places), self._link.latest(places, "read_committed")
        for at in places:
            task = Task(
                kafka={},
                topic=at[0],
                partition=at[1],
                start=max(starts[at], self._starts.get(at, 0)),
                end=ends[at],
                topic_id=None,
                isolation="read_committed",
                headers=True,
                fail_on_data_loss=False,
                silence_s=120.0,
            )
            yield from read_through(self._link, task)


class Headers:
    """Of the records of a batch, by name: the last one where a name comes twice."""

    def __init__(self, lists: Any) -> None:
        import pyarrow.compute as pc

        pairs = pc.list_flatten(lists)
        self._count = len(lists)
        self._parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        self._names = pairs.field("key")
        self._values = pairs.field("value")

    def value(self, name: str) -> Any:
        """Bytes for each record, null where it has no such header."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        at = np.flatnonzero(pc.equal(self._names, name).to_numpy(zero_copy_only=False))
        chosen = np.full(self._count, -1, np.int64)
        chosen[self._parents[at]] = at
        return self._values.take(pa.array(chosen, mask=chosen < 0))

    def equal(self, name: str, text: str) -> Any:
        import pyarrow.compute as pc

        return pc.fill_null(pc.equal(self.value(name), text.encode()), False)

    def number(self, name: str) -> Any:
        """Whole numbers; null where the text is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        value = self.value(name)
        is_number = pc.fill_null(pc.match_substring_regex(value, _NUMBER), False)
        return pc.if_else(is_number, value, pa.scalar(None, pa.binary())).cast(pa.string()).cast(pa.int64())


def _coordinates(headers: Headers) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    topics = _text(headers.value(TOPIC))
    partitions, offsets = headers.number(PARTITION), headers.number(OFFSET)
    partitions = pc.if_else(pc.less(partitions, 1 << 31), partitions, pa.scalar(None, pa.int64()))
    times = headers.number(TIMESTAMP).cast(pa.timestamp("ms", "UTC"))
    known = pc.and_(pc.and_(topics.is_valid(), partitions.is_valid()), offsets.is_valid())
    found = pa.record_batch(
        [topics, partitions.cast(pa.int32()), offsets, times], ["topic", "partition", "offset", "timestamp"]
    )
    return found.filter(known)


def _text(value: Any) -> Any:
    """As strings; null where the bytes are not UTF-8."""
    import pyarrow as pa

    try:
        return value.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if one is None else one.decode(errors="replace") for one in value.to_pylist()], pa.string()
        )


def _first_text(headers: Headers, names: tuple[str, ...]) -> Any:
    import pyarrow.compute as pc

    return pc.coalesce(*(_text(headers.value(name)) for name in names))
