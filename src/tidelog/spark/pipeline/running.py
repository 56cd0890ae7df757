"""One flow's streaming query: starts it, looks at it, stops it after the current batch.

The batch runs in a thread of Spark's callbacks, the rest in the runner's. A stop closes the gate: a batch that is
being written is finished and committed, the next one is refused, which Spark repeats after the next start.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidelog.kernel.errors import TidelogError
from tidelog.kernel.ports import Clock
from tidelog.spark.pipeline.kinds import kind_of
from tidelog.spark.pipeline.model import Flow, Pipeline
from tidelog.spark.pipeline.origins import ingests_behind
from tidelog.spark.pipeline.plans import Plans, first_line
from tidelog.spark.pipeline.progress import Progress, progress_of
from tidelog.spark.pipeline.sinks import Sink, Upkeep, Waking, Written
from tidelog.spark.pipeline.starts import note_definition, note_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

COMMIT_S: Final = 30.0  # Spark writes its own commit right after the batch
RECENT: Final = 100  # batches; as many as Spark keeps the reports of


class _Refused(TidelogError):
    """The pipeline is stopping; Spark runs this batch again after the next start."""


class RunningFlow:
    def __init__(self, flow: Flow, pipeline: Pipeline, plans: Plans, clock: Clock, once: bool) -> None:
        self.flow = flow
        self.written: Written | None = None
        self.upkeep_error: str | None = None
        self.attempts = 0
        self.checkpoint = pipeline.work / "checkpoints" / flow.name
        self._pipeline = pipeline
        self._plans = plans
        self._clock = clock
        self._once = once or flow.trigger.once
        self._upkeep = Upkeep(flow.maintenance, clock)
        self._recent: dict[int, Written] = {}  # by batch: a report may come some batches later
        self._gate = threading.Lock()
        self._closed = False
        self._begun = -1
        self._raised: Exception | None = None
        self._noted = False
        self._query: StreamingQuery | None = None
        self._sink: Sink | None = None
        self._waking: Waking | None = None

    def start(self) -> None:
        """Everything anew, only the checkpoint is the same; raises what makes it impossible."""
        self._raised = None
        self._begun = -1
        self.attempts += 1
        made = kind_of(self.flow).sink(self.flow, self._pipeline)
        self._sink = made
        self._waking = made if isinstance(made, Waking) else None
        if self._waking is not None:
            self._waking.starting(self._clock)
        frame = self._plans.stream(self.flow.name, committing=True)
        writer = frame.writeStream.queryName(self.flow.name).option("checkpointLocation", str(self.checkpoint))
        writer = writer.foreachBatch(self._batch)
        if self._once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self.flow.trigger.every_ms} milliseconds")
        self._query = writer.start()

    @property
    def is_active(self) -> bool:
        return self._query is not None and self._query.isActive

    @property
    def is_open(self) -> bool:
        """Whether the query is past making its source, for which Spark starts a Python process."""
        return self._query is not None and not self._query.status["message"].startswith("Initializing")

    def look(self) -> None:
        if self._waking is not None:
            self._waking.look()

    def progress(self) -> Progress | None:
        report: Any = None if self._query is None else self._query.lastProgress
        return None if report is None else progress_of(_plain(report))

    def batches(self) -> list[Progress]:
        """The last ones of this start that are done, as far as Spark keeps them."""
        reports: list[Any] = [] if self._query is None else self._query.recentProgress
        return [progress for progress in (progress_of(_plain(report)) for report in reports) if not progress.idle]

    def written_by(self, batch: int) -> Written | None:
        """What the flow knew after one of its last batches."""
        return self._recent.get(batch)

    def error(self) -> tuple[str, bool] | None:
        """Of a query that has ended: what went wrong, and whether it would again; None for a good end."""
        raised = self._raised
        if raised is not None and not isinstance(raised, _Refused):
            return describe(raised)
        failed = None if self._query is None else self._query.exception()
        if failed is None or isinstance(raised, _Refused):
            return None
        return cause(str(failed)), _LOST.search(str(failed)) is not None

    def close_gate(self) -> None:
        """No batch begins from now on."""
        self._closed = True

    def stop(self) -> None:
        """After the current batch, and Spark's commit of it."""
        query = self._query
        if query is None:
            return
        self.close_gate()
        with self._gate:
            pass
        begun, deadline_s = self._begun, self._clock.monotonic_s() + COMMIT_S
        while query.isActive and begun >= 0 and self._clock.monotonic_s() < deadline_s:
            done = self.progress()
            if done is not None and done.batch >= begun:
                break
            # It may end with the batch that was refused, which it calls a failure.
            with contextlib.suppress(Exception):
                query.awaitTermination(1)
        query.stop()

    def _batch(self, frame: DataFrame, batch: int) -> None:
        with self._gate:
            try:
                if self._closed:
                    raise _Refused("the pipeline is stopping")
                self._begun = batch
                if any(one.starting == "latest" for one in ingests_behind(self._pipeline, self.flow)):
                    note_start(self._pipeline.work, self.flow.name, self.checkpoint)
                self._write(frame, batch)
            except Exception as error:
                self._raised = error
                raise

    def _write(self, frame: DataFrame, batch: int) -> None:
        sink = self._sink
        assert sink is not None
        from tidelog.spark.lake import query_id

        # Another process may have died in the middle of the same batch: its files must not be taken for ours.
        attempt = f"{self._clock.wall_ms()}-{self.attempts}"
        query = query_id(frame)
        if not self._noted:
            note_definition(self._pipeline, self.flow, query)
            self._noted = True
        self.written = sink.write(frame, query, batch, attempt)
        self._recent[batch] = self.written
        self._recent.pop(batch - RECENT, None)
        if self._upkeep.is_due():
            try:
                self._upkeep.run(sink.tables())
                self.upkeep_error = None
            except Exception as error:
                # The rows are in; what was not merged now is merged the next time.
                self.upkeep_error = f"maintenance: {first_line(error)}"


def _plain(report: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(report.json) if hasattr(report, "json") else report
    return found


def describe(error: Exception) -> tuple[str, bool]:
    """(text, hopeless): the plan, the schema or the settings are wrong, and no restart changes them; or records are
    gone that a flow with fail_on_data_loss must not miss."""
    if lost := _LOST.search(str(error)):  # raised in a task, far below what came up here
        return lost[0][:500], True
    hopeless = type(error).__name__ in (
        "AnalysisException",
        "ParseException",
        "PipelineError",
        "PlanError",
        "SchemaError",
        "StateError",
        "OptionError",
        "ConfigError",
    )
    return f"{type(error).__name__}: {first_line(error)}", hopeless


_LOST: Final = re.compile(r"\bDataLossError: .+")
_HEAD: Final = re.compile(r"terminated with exception: (.*)")
_PYTHON: Final = re.compile(r"^((?:[A-Za-z_][\w.]*)(?:Error|Exception): .+)$", re.MULTILINE)


def cause(text: str) -> str:
    """The line of a failed query that says why: Spark's own, and the last one of a Python traceback below it."""
    head = _HEAD.search(text)
    said = head[1].strip() if head else (text.strip().splitlines() or ["no reason given"])[0]
    raised = [found for found in _PYTHON.findall(text) if not found.startswith(("org.apache", "java.", "py4j."))]
    return f"{said} | {raised[-1]}"[:500] if raised and raised[-1] not in said else said[:500]
