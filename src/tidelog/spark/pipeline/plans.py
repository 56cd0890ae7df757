"""The flows as streaming DataFrames.

What a flow reads of another by name is the other's stream, made anew from the topic on, and not its table: each query
has its own place in the log, so a flow that is behind or down holds up nobody, and no table format needs a reader
of its own. The price is that the topic is read and decoded once per query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidelog.kernel.errors import TidelogError
from tidelog.spark.pipeline.batch_state import check_kept
from tidelog.spark.pipeline.faults import Fault, PipelineError
from tidelog.spark.pipeline.kinds import kind_of
from tidelog.spark.pipeline.kinds.ingest import Ingest, source_options
from tidelog.spark.pipeline.model import Flow, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Source = Callable[[Ingest, bool], "DataFrame"]
"""The stream of a flow's topics; whether it commits its progress to the flow's group."""


class Plans:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, source: Source | None = None) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._source = source or self._open
        self._opened: dict[tuple[tuple[str, str], ...], DataFrame] = {}

    def stream(self, name: str, *, committing: bool = False) -> DataFrame:
        """The rows that the flow's query gets; of an aggregate, those it aggregates.

        committing: the flow's own query commits its progress to the flow's group, those who read it do not.
        """
        flow = self._pipeline.flows[name]
        return kind_of(flow).stream(self, flow, committing)

    def records(self, flow: Ingest, committing: bool) -> DataFrame:
        """Of the flow's topics, as the source gives them."""
        return self._source(flow, committing)

    def query(self, query: str, reads: Sequence[str]) -> DataFrame:
        """A query over the streams of flows by their names."""
        for read in reads:
            self.stream(read).createOrReplaceTempView(read)
        return self._spark.sql(query)

    def check(self) -> None:
        """Every plan is made once before anything is started: a column that does not exist is found here."""
        faults: list[Fault] = []
        wrong: set[str] = set()
        for name, flow in self._pipeline.flows.items():
            if wrong.intersection(flow.inputs):
                wrong.add(name)  # it would only repeat the fault of what it reads
                continue
            try:
                self._check_one(flow)
            except Exception as error:
                if not _is_users(error):
                    raise
                wrong.add(name)
                path = ("flows", name, *kind_of(flow).blamed)
                faults.append(Fault(path, first_line(error), self._line(path)))
        if faults:
            raise PipelineError(faults, self._pipeline.source)

    def _check_one(self, flow: Flow) -> None:
        if isinstance(flow, Ingest) and self._source == self._open:
            from tidelog.spark.source.options import parse_options

            parse_options(source_options(self._pipeline, flow))
        kind, frame = kind_of(flow), self.stream(flow.name)
        kind.check(flow, frame)
        terms = kind.keeps(flow, frame)
        if terms is not None:
            check_kept(self._pipeline.work, flow.name, terms)
        kind.resumes(flow, self._pipeline)

    def _open(self, flow: Ingest, committing: bool) -> DataFrame:
        """Opened once: Spark starts a Python process to ask for the columns, and any query may use the frame."""
        options = source_options(self._pipeline, flow, retries=committing)
        if committing and flow.commit_group is not None:
            options["commitGroup"] = flow.commit_group
        key = tuple(sorted(options.items()))
        if key not in self._opened:
            self._opened[key] = self._spark.readStream.format("tidelog").options(**options).load()
        return self._opened[key]

    def _line(self, path: tuple[str, ...]) -> int | None:
        lines = self._pipeline.lines
        return next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), None)


def first_line(error: BaseException) -> str:
    """What Spark says of an error, without the plan it prints below."""
    text = str(error).strip() or type(error).__name__
    return text.split("\n\n")[0].splitlines()[0][:500]


def _is_users(error: Exception) -> bool:
    """Whether the file is wrong, and not the machine or we."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | TidelogError)
