"""`tidelog pipeline reprocess`: rebuild a flow's output from the log, and swap it in when its audit balances."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from tidelog.cli.common import CommandError, Parser, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipeline.model import Pipeline

_LOOK_S: Final = 0.2


def add_reprocess(verbs: argparse._SubParsersAction[Parser], load: Callable[[argparse.Namespace], Pipeline]) -> None:
    parser = verbs.add_parser(
        "reprocess",
        help="rebuild a flow's tables from the log after its definition has changed",
        description="Without --flow, each flow whose rows were made by another definition than the file has now. "
        "The flow is run once more over the log beside the live one, as the file has it now. When its "
        "audit balances, its tables and its checkpoint take the place of the live ones in one step; until then "
        "readers find the old rows. A run of the pipeline may go on meanwhile.",
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help="the pipeline's file: YAML, or Python (.py)")
    parser.add_argument("--flow", help="the flow to rebuild; default: all that have changed")
    parser.add_argument(
        "--since",
        metavar="TIME|OFFSETS",
        help="only from there on, rows of earlier records stay: 2026-01-31T12:00:00 (UTC) or "
        '{"orders": {"0": 1200}}; for ingest flows, and sql flows over one of them',
    )
    parser.add_argument("--keep-old", action="store_true", help="keep the old rows beside, in TABLE__old")
    parser.add_argument(
        "--unproved", action="store_true", help="swap in also what can be neither proved nor refuted, such as rand()"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=lambda args: _reprocess(args, load(args)))


def _reprocess(args: argparse.Namespace, pipeline: Pipeline) -> int:
    from tidelog.runtime.clock import SystemClock
    from tidelog.spark.pipeline.reprocess.reprocessing import Reprocessing, flows_to_rebuild
    from tidelog.spark.pipeline.reprocess.since import ReprocessError, parse_since
    from tidelog.spark.pipeline.session import log_of, session_of

    try:
        since = None if args.since is None else parse_since(args.since)
        flows = flows_to_rebuild(pipeline, args.flow, since)
    except ReprocessError as error:
        raise UsageError(str(error)) from None
    if args.flow is None:
        _say(f"{pipeline.name}: changed since their rows were made: {', '.join(flow.name for flow in flows)}")
    _confirm(args.yes, ", ".join(table.path for flow in flows for table in flow.tables))
    with ExitStack() as stack:
        started: list[SparkSession] = []

        def session() -> SparkSession:
            if not started:
                _say(f"{pipeline.name}: starting Spark, which prints to {log_of(pipeline)}")
                started.append(session_of(pipeline))
                stack.callback(started[0].stop)
            # Views are a session's, and each flow has its own of the same names.
            return started[0].newSession()

        for flow in flows:
            Reprocessing(
                pipeline,
                flow.name,
                session,
                SystemClock(),
                _say,
                since=since,
                keep_old=args.keep_old,
                unproved=args.unproved,
                wait=lambda: time.sleep(_LOOK_S),
            ).run()
    return 0


def _confirm(yes: bool, tables: str) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"this replaces {tables}; --yes says that it may")
    print(f"This replaces {tables}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
