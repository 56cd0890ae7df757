"""`tidelog pipeline redrive`: dead letters go back to their flow, each once."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tidelog.cli.common import Parser, UsageError, add_json, print_json
from tidelog.cli.times import parse_time

if TYPE_CHECKING:
    from tidelog.spark.pipeline.letters.redriving import Redriven
    from tidelog.spark.pipeline.model import Pipeline


def add_redrive(verbs: argparse._SubParsersAction[Parser]) -> Parser:
    parser = verbs.add_parser(
        "redrive",
        help="send dead letters of a flow back to it, all or some, each once",
        description="Dead letters go into the flow's retry topic for an attempt at once, and land under the "
        "coordinates that they have in the log. Each is sent once, also when the command is killed and run again; one "
        "that dies again is another letter. What was sent is written to the topic DEAD.redriven.",
    )
    parser.add_argument("pipeline", metavar="PIPELINE", help="the pipeline's file: YAML, or Python (.py)")
    parser.add_argument("flow", metavar="FLOW", help="an ingest flow with dead_letters")
    parser.add_argument("--reason", help="only those that died for it: the name of a rule, or decode")
    parser.add_argument(
        "--since", metavar="TIME", help="only those that died then or later: 2026-11-17T08:00:00, or ms"
    )
    parser.add_argument("--key", help="only those with this key (UTF-8)")
    parser.add_argument("--where", metavar="FILTER", help="comparisons with AND between: offset >= 100 AND attempt < 3")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be sent")
    add_json(parser)
    return parser


def redrive(args: argparse.Namespace, pipeline: Pipeline) -> int:
    from tidelog.runtime.clock import SystemClock
    from tidelog.spark.pipeline.letters.filters import FilterError, Wanted
    from tidelog.spark.pipeline.letters.redriving import Redrive

    if args.limit is not None and args.limit < 1:
        raise UsageError(f"--limit {args.limit} is not a number from 1 on")
    try:
        wanted = Wanted.of(
            reason=args.reason,
            since_ms=None if args.since is None else parse_time(args.since),
            key=args.key,
            where=args.where,
        )
    except FilterError as error:
        raise UsageError(f"--where: {error}") from None
    shown = sys.stderr.isatty() and not args.json
    command = Redrive(
        pipeline,
        args.flow,
        wanted,
        SystemClock(),
        limit=args.limit,
        dry_run=args.dry_run,
        tell=_progress if shown else lambda read, sent: None,
    )
    done = command.run()
    if shown:
        print(file=sys.stderr)
    if args.json:
        print_json(done.as_json())
    else:
        print(_summary(done))
    return 0


def _progress(read: int, sent: int) -> None:
    print(f"\r{read} letters read, {sent} sent", end="", file=sys.stderr, flush=True)


def _summary(done: Redriven) -> str:
    what = "would be sent back" if done.dry_run else "were sent back"
    lines = [f"{done.sent.total()} of {done.read} letters {what}"]
    lines += [f"  {reason}: {count}" for reason, count in sorted(done.sent.items())]
    lines += [
        f"  {count} {text}"
        for count, text in (
            (done.before, "were sent back before"),
            (done.not_meant, "are not meant by the filter"),
            (done.others, "are not of this flow's checkpoint"),
        )
        if count
    ]
    return "\n".join(lines)
