"""`tidelog pipeline`: write an example, run a pipeline, show it, prove what it has landed."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.common import (
    BOOTSTRAP_DEFAULT,
    BOOTSTRAP_VARIABLE,
    CommandError,
    Parser,
    UsageError,
    add_json,
    print_json,
)
from tidelog.cli.pipeline_reprocess import add_reprocess
from tidelog.cli.redrive import add_redrive, redrive

if TYPE_CHECKING:
    from tidelog.spark.pipeline.meters import Meters
    from tidelog.spark.pipeline.model import Pipeline
    from tidelog.spark.pipeline.runner import Runner

_INTERVAL_S: Final = 1.0
_EXTRA: Final = "the pipeline needs more packages: pip install 'tidelog[spark]'"


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("pipeline", help="carry topics into lake tables with Spark")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    _add_init(verbs)
    _add_run(verbs)
    _add_status(verbs)
    _add_check(verbs)
    _add_report(verbs)
    add_reprocess(verbs, _load)
    add_redrive(verbs).set_defaults(run=lambda args: redrive(args, _load(args)))


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", help="the pipeline's file: YAML, or Python (.py)")


def _load(args: argparse.Namespace) -> Pipeline:
    try:
        from tidelog.spark.pipeline import load

        return load(args.pipeline)
    except ImportError as error:
        raise CommandError(f"{_EXTRA} ({error})") from error


# init


def _add_init(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("init", help="write an example with comments, which runs against a local node")
    parser.add_argument("pipeline", metavar="PIPELINE", help="the file to write, such as shop.yaml")
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        dest="bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP_DEFAULT,
        help=f"the broker to write into it (default: ${BOOTSTRAP_VARIABLE}, else {BOOTSTRAP_DEFAULT})",
    )
    parser.add_argument("--force", action="store_true", help="write over a file that exists")
    parser.set_defaults(run=_init)


def _init(args: argparse.Namespace) -> int:
    from tidelog.spark.pipeline.example import RECORD, TOPIC, example

    path = Path(args.pipeline)
    name = re.sub(r"[^a-z0-9_]", "_", path.stem.lower()).strip("_")
    name = name if name[:1].isalpha() else f"p_{name}".strip("_")
    try:
        with path.open("w" if args.force else "x") as file:
            file.write(example(name[:63], args.bootstrap, str(path)))
    except FileExistsError:
        raise CommandError(f"{path} exists; --force writes over it") from None
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    print(f"{path} is written. It reads the topic {TOPIC!r}; if there is none:")
    print(f"  tidelog topic create {TOPIC} -b {args.bootstrap}")
    print(f"  tidelog produce {TOPIC} '{RECORD}' -b {args.bootstrap}")
    print("then:")
    print(f"  tidelog pipeline run {path}        # or --once; Ctrl-C ends it")
    print(f"  tidelog pipeline report {path}     # what it did, as a page with plots")
    return 0


# run


def _add_run(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("run", help="run all flows until Ctrl-C, each from its checkpoint")
    _add_file(parser)
    parser.add_argument("--once", action="store_true", help="only what is in the topics now, then end")
    parser.add_argument("--dry-run", action="store_true", help="only read and check the file; start nothing")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics for Prometheus there while it runs")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    pipeline = _load(args)
    if args.dry_run:
        print(f"{args.pipeline} is right: {len(pipeline.flows)} flows, {', '.join(pipeline.flows)}")
        return 0
    from tidelog.runtime.clock import SystemClock
    from tidelog.spark.pipeline.meters import Meters
    from tidelog.spark.pipeline.runner import Runner
    from tidelog.spark.pipeline.session import log_of, session_of

    meters = Meters(pipeline.flows)
    with ExitStack() as stack:
        if args.metrics:
            stack.enter_context(_metrics(pipeline, meters, args.metrics))
        _say(f"{pipeline.name}: starting Spark, which prints to {log_of(pipeline)}")
        spark = session_of(pipeline)
        stack.callback(spark.stop)
        runner = Runner(pipeline, spark, SystemClock(), _say, once=args.once, meters=meters, reload=lambda: _load(args))
        _handle_signals(runner)
        return runner.run()


def _metrics(pipeline: Pipeline, meters: Meters, address: str) -> AbstractContextManager[object]:
    from tidelog.runtime.clock import SystemClock
    from tidelog.spark.pipeline.metrics import MetricsServer, exposition

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--metrics {address} is not HOST:PORT, such as 127.0.0.1:9309")
    clock = SystemClock()
    try:
        server = MetricsServer(host, int(port), lambda: exposition(pipeline.name, meters.read(), clock.wall_ms()))
    except (OSError, OverflowError) as error:
        raise CommandError(f"cannot serve metrics on {address}: {error}") from None
    _say(f"{pipeline.name}: metrics on http://{host}:{server.port}/metrics")
    return closing(server)


def _handle_signals(runner: Runner) -> None:
    def ask(signum: int, frame: object) -> None:
        if runner.stop_asked:
            raise KeyboardInterrupt
        runner.stop_asked = True
        os.write(2, b"stopping after the current batches; once more ends at once\n")

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


# status


def _add_status(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser("status", help="show rates, lag, watermarks and errors, live in a terminal")
    _add_file(parser)
    parser.add_argument("--now", action="store_true", help="once, also in a terminal")
    add_json(parser)
    parser.set_defaults(run=_status)


def _status(args: argparse.Namespace) -> int:
    from tidelog.runtime.clock import SystemClock

    pipeline = _load(args)
    from tidelog.spark.pipeline import status
    from tidelog.spark.pipeline.state import StateFiles

    clock, files, flows = SystemClock(), StateFiles(pipeline.work), list(pipeline.flows)
    if args.json:
        print_json(status.as_json(pipeline.name, files.read(flows), clock.wall_ms()))
    elif args.now or not sys.stdout.isatty():
        print(status.text(pipeline.name, files.read(flows), clock.wall_ms()))
    else:
        status.watch(pipeline.name, lambda: files.read(flows), clock.wall_ms, _wait)
    return 0


def _wait() -> bool:
    time.sleep(_INTERVAL_S)
    return True


# check


def _add_check(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser(
        "check",
        help="prove that what is in the topics is in the tables",
        description="Compare the records in the broker's log with the rows in the tables: by topic, partition and "
        "offset where rows have them, else by computing the flow anew from the log, which starts Spark. With `audit:` "
        "in the file also with what producers and consumers have counted, by window. Exit code 1 when a record or row "
        "is missing, one is there twice, a value is wrong, or a tier's count is off.",
    )
    _add_file(parser)
    parser.add_argument("flows", nargs="*", metavar="FLOW", help="only these flows")
    parser.add_argument("--strict", action="store_true", help="exit code 1 also when something is unknown")
    add_json(parser)
    parser.set_defaults(run=_check, words="flows")


def _check(args: argparse.Namespace) -> int:
    pipeline = _load(args)
    from tidelog.spark.pipeline.checking import check, summary_of, verdict_of

    tell = _say if sys.stderr.isatty() else lambda text: None
    found = {}
    for name, finding in check(pipeline, args.flows, tell):
        found[name] = finding
        if not args.json:
            print(f"{name}\n{finding.table()}\n", flush=True)
    findings = list(found.values())
    if args.json:
        flows = {name: finding.as_json() for name, finding in found.items()}
        print_json({"pipeline": pipeline.name, "verdict": verdict_of(findings), "flows": flows})
    else:
        print(summary_of(pipeline, findings))
    return 1 if any(finding.fails(args.strict) for finding in findings) else 0


# report


def _add_report(verbs: argparse._SubParsersAction[Parser]) -> None:
    parser = verbs.add_parser(
        "report",
        help="write what the pipeline did as one HTML page with plots",
        description="Rates, lag, watermarks, restarts and errors over time, the tables, and the audit as `check` makes "
        "it. The page is one file and needs no network.",
    )
    _add_file(parser)
    parser.add_argument("--out", metavar="FILE.html", help="where to write it (default: NAME-report.html)")
    parser.add_argument("--picture", metavar="FILE.svg", help="its head as a picture too")
    parser.add_argument("--no-check", action="store_true", help="without the audit, which reads the whole log")
    parser.add_argument("--since", metavar="DURATION", help="only the last part of the history, such as 2h")
    parser.set_defaults(run=_report)


def _report(args: argparse.Namespace) -> int:
    pipeline = _load(args)
    from tidelog.spark.pipeline.durations import FORM, parse_ms
    from tidelog.spark.pipeline.report import write_report

    since_ms = None if args.since is None else parse_ms(args.since)
    if args.since is not None and not since_ms:
        raise UsageError(f"--since {args.since} is not {FORM}")
    tell = _say if sys.stderr.isatty() else lambda text: None
    out = Path(args.out or f"{pipeline.name}-report.html")
    try:
        write_report(pipeline, out, picture=args.picture, check=not args.no_check, since_ms=since_ms, tell=tell)
    except OSError as error:
        raise CommandError(f"cannot write {error.filename or out}: {error.strerror or error}") from None
    print(out)
    return 0
