"""Commands with verbs, such as `tidelog topic list`: what their parsers and their answers have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from tidelog.cli.common import Parser, add_bootstrap, ask, is_error, report

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster


def add_verbs(
    commands: argparse._SubParsersAction[Any],
    command: str,
    help: str,
    *adds: Callable[[argparse._SubParsersAction[Parser]], None],
) -> None:
    """A command, each verb of which asks a broker."""
    parser = commands.add_parser(command, help=help)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    for add in adds:
        add(verbs)
    for verb in verbs.choices.values():
        add_bootstrap(verb)


def asks(
    parser: argparse.ArgumentParser,
    question: Callable[[Cluster, argparse.Namespace], Coroutine[Any, Any, int]],
    **defaults: object,
) -> None:
    """What the verb does: a question on a client of the broker that the command line names."""
    parser.set_defaults(run=lambda args: ask(args, lambda cluster: question(cluster, args)), **defaults)


def add_states(parser: argparse.ArgumentParser, such_as: str) -> None:
    parser.add_argument("-s", "--state", action="append", default=[], help=f"only in this state, such as {such_as}")


def states_of(args: argparse.Namespace) -> list[str]:
    """Given one by one, or with commas."""
    return [state for given in args.state for state in given.split(",")]


def report_missing(described: Mapping[str, object], command: str, nouns: str) -> int:
    """Say which of the things that were asked for by name could not be described; the exit code."""
    missing = {name: found for name, found in described.items() if is_error(found)}
    if missing:
        print(f"tidelog: `tidelog {command} list` shows the {nouns} there are", file=sys.stderr)
    return report(missing)
