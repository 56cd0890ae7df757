"""`./dev bench`: Tidelog beside Apache Kafka, in one run, driven by the same clients."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

RESULTS = Path("bench/results/node.json")


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    if args.command == "smoke":
        from bench.smoke import run_smoke

        return run_smoke(args.seconds, args.record_size)
    if args.command == "requests":
        if args.in_process:
            from bench.handling import run_handling

            return run_handling(args.only)
        from bench.requests import run_requests

        return run_requests(args.connections, args.seconds, args.only, args.mode)
    if args.command == "partitions":
        from bench.partitions import run_partitions

        return run_partitions(args.counts, args.mode, args.json)
    if args.command == "cold":
        from bench.cold import run_cold

        return run_cold(args.bytes, args.seconds)
    if args.command == "groups":
        from bench.groups import run_groups

        return run_groups(
            args.members,
            args.partitions,
            runs=args.runs,
            seconds=args.seconds,
            only=args.only,
            sides=args.sides,
            path=args.json,
        )
    if args.command == "decode":
        return _decode(args)
    if args.command == "payloads":
        from bench.payloads import run_payloads

        return run_payloads(args.rows, args.seconds)
    if args.command == "cleaning":
        return _cleaning(args)
    if args.command == "spark" and args.latency:
        from bench.lake_latency import run_latency

        return run_latency(args.triggers, rate=args.rate, seconds=args.seconds, warm_s=args.warm_s)
    if args.command == "spark":
        from bench.spark import run_spark

        sizes = {size: int(args.mb * 1e6 / size) for size in args.sizes}
        return run_spark(sizes, args.ways, runs=args.runs, warm_ups=args.warm_ups, sides=args.sides, path=args.json)
    if args.command == "spark-sink":
        from bench.spark_sink import run_sink

        sizes = {size: int(args.mb * 1e6 / size) for size in args.sizes}
        return run_sink(sizes, runs=args.runs, warm_ups=args.warm_ups, codec=args.codec, path=args.json)
    if args.command == "table":
        return _table(args)
    return _node(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    smoke = commands.add_parser("smoke", help="half a minute of produce and consume on both, as ratios")
    smoke.add_argument("--seconds", type=float, default=30, help="about how long the measured rounds take together")
    smoke.add_argument("--record-size", type=int, default=1000)
    requests = commands.add_parser("requests", help="CPU of our node per small request")
    requests.add_argument("--connections", type=int, default=200)
    requests.add_argument("--seconds", type=float, default=4, help="for each kind of request")
    requests.add_argument("--mode", choices=("page-cache", "synced"), default="page-cache")
    requests.add_argument("--only", help="the kinds whose name holds this")
    requests.add_argument("--in-process", action="store_true", help="without sockets: the node's own part")
    partitions = commands.add_parser("partitions", help="what 1 to 10,000 partitions cost: memory, files, waits")
    partitions.add_argument("--counts", type=int, nargs="+", default=[1, 100, 1000, 10_000], metavar="N")
    partitions.add_argument("--mode", choices=("page-cache", "synced"), default="synced")
    partitions.add_argument("--json", metavar="FILE", help="write the figures there as well")
    cold = commands.add_parser("cold", help="readers at the tail beside a scan of a log that is not in memory")
    cold.add_argument("--bytes", type=int, default=2_000_000_000, help="of the old log (2,000,000,000)")
    cold.add_argument("--seconds", type=float, default=10, help="each of the fifteen phases")
    groups = commands.add_parser("groups", help="large groups: rebalances, joins, commits, the silence of consumers")
    groups.add_argument("--members", type=int, default=1000)
    groups.add_argument("--partitions", type=int, default=5000)
    groups.add_argument("--runs", type=int, default=3, help="of each measurement, the median counts; two of gap")
    groups.add_argument("--seconds", type=float, default=5, help="each run of commits")
    groups.add_argument("--only", help="some of classic,consumer,commits,gap")
    groups.add_argument("--sides", help="some of tidelog (page-cache mode),synced,apache")
    groups.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    decode = commands.add_parser("decode", help="records a core decodes a second: sizes, headers, codecs, both twins")
    decode.add_argument("--twins", default="native,pure", help="some of native,pure")
    decode.add_argument("--codecs", default="none,gzip,snappy,lz4,zstd", help="some of them")
    decode.add_argument("--bytes", type=int, default=32_000_000, help="of records in a log, an eighth for pure")
    decode.add_argument("--seconds", type=float, default=0.5, help="of CPU for each figure")
    decode.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    payloads = commands.add_parser("payloads", help="records a core turns into typed columns a second, and back")
    payloads.add_argument("--rows", type=int, default=10_000, help="in a batch")
    payloads.add_argument("--seconds", type=float, default=2, help="of CPU for each figure")
    cleaning = commands.add_parser("cleaning", help="how fast a log is compacted, beside Apache Kafka's cleaner")
    cleaning.add_argument("--gb", type=float, nargs="+", default=[1.0], help="sizes of the log (1)")
    cleaning.add_argument("--codecs", nargs="+", default=["none", "zstd"], help="none, gzip, snappy, lz4, zstd")
    cleaning.add_argument("--live", type=float, default=0.1, help="keys for each record (0.1)")
    cleaning.add_argument("--runs", type=int, default=5, help="of each, the median counts")
    cleaning.add_argument("--latency", action="store_true", help="what producers and consumers notice of it, instead")
    cleaning.add_argument("--seconds", type=float, default=10, help="of --latency: quiet, and cleaning at most (10)")
    cleaning.add_argument("--rate", type=float, default=2000, help="of --latency: records a second (2,000)")
    cleaning.add_argument("--throttle-mb", type=float, default=20, help="of --latency: MB/s of the second half (20)")
    cleaning.add_argument("--sides", help="some of tidelog,pure (without numba),apache")
    cleaning.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    spark = commands.add_parser("spark", help="rows a second into Spark, beside Spark's own connector")
    spark.add_argument("--sizes", type=int, nargs="+", default=[1000, 100], metavar="BYTES", help="of a value")
    spark.add_argument("--mb", type=float, default=500, help="of values in each topic (500)")
    spark.add_argument(
        "--ways", nargs="+", choices=("batch", "stream", "parquet"), default=["batch", "stream", "parquet"]
    )
    spark.add_argument("--runs", type=int, default=5, help="of each, the median counts")
    spark.add_argument("--warm-ups", type=int, default=1)
    spark.add_argument("--sides", help="some of tidelog,segments (the source with read=segments),jvm")
    spark.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    spark.add_argument("--latency", action="store_true", help="from produce() to a row of the lake table, instead")
    spark.add_argument("--triggers", nargs="+", default=["100ms", "1s"], help="of --latency (100ms 1s)")
    spark.add_argument("--rate", type=float, default=200, help="of --latency: records a second (200)")
    spark.add_argument("--seconds", type=float, default=60, help="of --latency, each trigger (60)")
    spark.add_argument("--warm-s", type=float, default=20, help="of --latency: before them (20)")
    sink = commands.add_parser("spark-sink", help="rows a second out of Spark: exactly once beside at least once")
    sink.add_argument("--sizes", type=int, nargs="+", default=[1000, 100], metavar="BYTES", help="of a value")
    sink.add_argument("--mb", type=float, default=300, help="of values in a write (300)")
    sink.add_argument("--codec", default="lz4", help="none, gzip, snappy, lz4 (the default) or zstd")
    sink.add_argument("--runs", type=int, default=5, help="of each, the median counts")
    sink.add_argument("--warm-ups", type=int, default=1)
    sink.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    node = commands.add_parser("node", help="the whole table, with warm-ups and interleaved runs")
    node.add_argument("--rows", help="only these, by name or beginning: produce-1k,ping (--list names them)")
    node.add_argument("--list", action="store_true", help="name the rows and stop")
    node.add_argument("--runs", type=int, help="measured runs of each row (5)")
    node.add_argument("--warm-ups", type=int, help="unmeasured rounds before them (2)")
    node.add_argument("--bytes", type=int, help="bytes of records in a run (1,000,000,000)")
    node.add_argument("--seconds", type=float, help="the longest that a run lasts, and the length of latency runs (30)")
    node.add_argument("--quick", action="store_true", help="2 runs of 50 MB or 2 s: does everything work?")
    node.add_argument("--without-apache", action="store_true", help="our column only")
    node.add_argument("--json", type=Path, default=RESULTS, help=f"where rows are written and merged ({RESULTS})")
    table = commands.add_parser("table", help="what a results file says")
    table.add_argument("file", type=Path, nargs="?", default=RESULTS)
    table.add_argument(
        "--into", type=Path, metavar="PAGE", help="put it between the marks of a page (docs/performance.md)"
    )
    return parser


def _node(args: argparse.Namespace) -> int:
    from bench.catalogue import chosen
    from bench.node import Settings, estimate_s, run_node

    rows = chosen(args.rows)
    base = Settings(runs=2, warm_ups=1, bytes=50_000_000, seconds=2.0, quick=True) if args.quick else Settings()
    given = {"runs": args.runs, "warm_ups": args.warm_ups, "bytes": args.bytes, "seconds": args.seconds}
    settings = Settings(**{**vars(base), **{name: value for name, value in given.items() if value is not None}})
    if args.list:
        for row in rows:
            print(f"{row.name:16} {estimate_s(row, len(row.sides), settings) / 60:5.1f} min  {row.title}")
        return 0
    return run_node(rows, settings, args.json, with_apache=not args.without_apache)


def _cleaning(args: argparse.Namespace) -> int:
    if args.latency:
        from bench.cleaning_latency import run_latency

        return run_latency(
            int(args.gb[0] * 1e9),
            seconds=args.seconds,
            rate=args.rate,
            throttle=int(args.throttle_mb * 1e6),
            runs=args.runs,
            live=args.live,
            sides=args.sides,
            path=args.json,
        )
    from bench.cleaning import run_cleaning

    return run_cleaning(
        [int(gb * 1e9) for gb in args.gb],
        args.codecs,
        runs=args.runs,
        live=args.live,
        sides=args.sides,
        path=args.json,
    )


def _decode(args: argparse.Namespace) -> int:
    from bench.decode import TWINS, run_decode
    from tidelog.protocol.compression import Codec

    twins = tuple(twin for twin in TWINS if twin in args.twins.split(","))
    codecs = tuple(codec for codec in Codec if codec.name.lower() in args.codecs.split(","))
    return run_decode(twins, codecs, args.bytes, args.seconds, args.json)


def _table(args: argparse.Namespace) -> int:
    from bench import results, table

    if not args.file.exists():
        print(f"there is no {args.file}: ./dev bench node writes it")
        return 1
    found = results.read(args.file)
    if args.into:
        table.write_into(args.into, found)
    else:
        print(table.render(found))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("ended by Ctrl-C; rows that were done are in the file")
