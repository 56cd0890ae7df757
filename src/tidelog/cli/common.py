"""What the commands share: the options that name a broker, running a question on a client, tables, JSON, errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tidelog.kernel.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.errors import MissingError

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "TIDELOG_BOOTSTRAP"


class CommandError(TidelogError):
    """A command that cannot be done, in a sentence with what to do next."""


class UsageError(CommandError):
    """A command line that cannot be understood: exit code 2."""


class Parser(argparse.ArgumentParser):
    """One sentence instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` tells more\n")


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("broker")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        "--bootstrap-servers",
        dest="bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP_DEFAULT,
        help=f"a broker, or several with commas (default: ${BOOTSTRAP_VARIABLE}, else {BOOTSTRAP_DEFAULT})",
    )
    group.add_argument("--broker-list", "--brokers", dest="bootstrap", help=argparse.SUPPRESS)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text for people")


def add_names(parser: argparse.ArgumentParser, noun: str, metavar: str, help: str) -> None:
    """Names as arguments, or with --topic or --group as in Apache's tools."""
    parser.add_argument("names", nargs="*", metavar=metavar, help=help)
    parser.add_argument(f"--{noun}", dest="more_names", action="append", default=[], help=argparse.SUPPRESS)
    parser.set_defaults(words="names")


def names_of(args: argparse.Namespace, noun: str) -> list[str]:
    names: list[str] = list(dict.fromkeys([*args.names, *args.more_names]))
    if not names:
        raise UsageError(f"name at least one {noun}")
    return names


def ask(args: argparse.Namespace, question: Callable[[Cluster], Coroutine[Any, Any, int]]) -> int:
    """Run a question on a client of the broker that the command line names."""
    from tidelog.client.errors import BrokerError, MissingError, UnreachableError, UnsupportedApiError
    from tidelog.runtime.loop import run

    try:
        return run(_with_cluster(args.bootstrap, question))
    except UnreachableError as error:
        hint = f"start a node with `tidelog serve`, or name a broker with --bootstrap-server or {BOOTSTRAP_VARIABLE}"
        raise CommandError(f"{error}; {hint}") from error
    except UnsupportedApiError as error:
        raise CommandError(f"{error}; the command needs a newer broker") from error
    except MissingError as error:
        hint = "list" if error.partition is None else f"describe {error.topic}"
        raise CommandError(f"{error}; `tidelog topic {hint}` shows what there is") from error
    except BrokerError as error:
        raise CommandError(str(error)) from error


async def _with_cluster(bootstrap: str, question: Callable[[Cluster], Coroutine[Any, Any, int]]) -> int:
    from tidelog.client.cluster import Cluster
    from tidelog.client.errors import MissingError
    from tidelog.runtime.clock import SystemClock
    from tidelog.runtime.net import OsNet

    async with Cluster(OsNet(), SystemClock(), bootstrap) as cluster:
        try:
            return await question(cluster)
        except MissingError as error:
            await _suggest(cluster, error)
            raise


async def _suggest(cluster: Cluster, error: MissingError) -> None:
    """A mistyped name is the usual reason: name the topic that was probably meant."""
    from tidelog.cli.main import nearest

    known = (await cluster.all_topics()).topics
    hint = "" if error.topic in known else nearest(error.topic, known)
    if hint:
        raise CommandError(f"{error}{hint}? `tidelog topic list` shows what there is") from error


def report(results: Mapping[Any, object], done: Callable[[Any], str] | None = None) -> int:
    """Say of every item that it is done or why not; the exit code."""
    failures = 0
    for item, result in results.items():
        if is_error(result):
            failures += 1
            print(f"tidelog: {result}", file=sys.stderr)
        elif done is not None:
            print(done(item))
    return 1 if failures else 0


def is_error(result: object) -> bool:
    return isinstance(result, Exception)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; None is a dash, as in Apache's tools."""
    table = [list(columns), *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def print_json(value: object) -> None:
    import json

    print(json.dumps(value, ensure_ascii=False, default=str))


def key_value(text: str) -> tuple[str, str]:
    """`name=value` of an option; argparse shows the message."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number
