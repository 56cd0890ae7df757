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

COMMANDS: Final = {
    "serve": "run a node",
}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser(arguments)
    args = parser.parse_args(arguments)
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
        return _explain(arguments, error)


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """With only the named command inside, so that the others are never imported; with all their names for --help."""
    parser = argparse.ArgumentParser(
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
            parser.error(f"there is no command {name!r}{nearest(name, COMMANDS)}; `tidelog --help` lists them")
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


def _explain(arguments: Sequence[str], error: Exception) -> int:
    from tidelog.kernel.errors import TidelogError

    if os.environ.get("TIDELOG_DEBUG"):
        raise error
    name = next((argument for argument in arguments if argument in COMMANDS), "")
    text = str(error) if isinstance(error, TidelogError) else f"unexpected {type(error).__name__}: {error}"
    print(f"tidelog {name}: {text}", file=sys.stderr)
    if not isinstance(error, TidelogError):
        print("This is a bug in Tidelog; TIDELOG_DEBUG=1 shows where.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
