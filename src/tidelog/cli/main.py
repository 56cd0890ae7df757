"""The `tidelog` command: finds the noun, imports only its module, turns errors into sentences and exit codes.

0 is success, 1 a failure that the message explains, 2 a command line that cannot be understood.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Final

from tidelog.cli.common import Parser, UsageError
from tidelog.kernel.errors import TidelogError

COMMANDS: Final = {
    "serve": "run a node",
    "topic": "create, list, describe, change and delete topics",
    "config": "get, set and unset configs of topics, brokers and groups",
    "produce": "write records",
    "consume": "read records",
    "group": "list, describe, reset and delete consumer groups",
    "txn": "list, describe and abort transactions",
    "dump": "show what is in the files of a data directory",
    "pipeline": "carry topics into lake tables with Spark",
    "verify": "check the files of a stopped node's data directories",
}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = parse(arguments)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `tidelog consume | head`: the reader has what it wanted. Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _explain(error)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """argparse takes the names of a command only in one row; people also write `topic create a -p 3 b`."""
    parser = build_parser(arguments)
    args, rest = parser.parse_known_args(arguments)
    leaf = _leaf(parser, args)
    for word in rest:
        if word.startswith("-") and word != "-":
            known = [option for option in leaf._option_string_actions if option.startswith("--")]
            leaf.error(f"there is no option {word}{nearest(word.partition('=')[0], known)}")
        into = getattr(args, "words", None)
        if into is None:
            leaf.error(f"what is {word!r}? it takes no more names")
        getattr(args, into).append(word)
    return args


def _leaf(parser: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.ArgumentParser:
    """The parser of the very command and verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            chosen: argparse.ArgumentParser = action.choices[getattr(args, action.dest)]
            return _leaf(chosen, args)
    return parser


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """With only the named command inside, so that the others are never imported; with all their names for --help."""
    parser = Parser(
        prog="tidelog",
        description="A commit log that speaks Apache Kafka's protocol, and the tools around it.",
        epilog="`tidelog COMMAND --help` tells more. TIDELOG_BOOTSTRAP=HOST:PORT names the broker for all commands.",
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    if name in COMMANDS:
        import_module(f"tidelog.cli.{name}").add_parser(commands)
    else:
        for command, text in COMMANDS.items():
            commands.add_parser(command, help=text)
        if name is not None:
            parser.error(f"there is no command {name!r}{nearest(name, COMMANDS)}")
    return parser


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that was probably meant, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), 1)
    return f", did you mean {found[0]!r}" if found else ""


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: importlib.metadata costs more than the rest of the start."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"tidelog {version('tidelog')}")
        parser.exit()


def _explain(error: Exception) -> int:
    if os.environ.get("TIDELOG_DEBUG"):
        raise error
    text = str(error) if isinstance(error, TidelogError) else f"unexpected {type(error).__name__}: {error}"
    print(f"tidelog: {text}", file=sys.stderr)
    if not isinstance(error, TidelogError):
        print("This is a bug in Tidelog; TIDELOG_DEBUG=1 shows where.", file=sys.stderr)
    return 2 if isinstance(error, UsageError) else 1


if __name__ == "__main__":
    sys.exit(main())
