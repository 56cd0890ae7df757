"""`./dev demo`: reads the options, prepares the folder, plays the acts, ends every process."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tidelog.kernel.errors import DirectoryLockedError, TidelogError
from tidelog.runtime.dirlock import lock_file
from tools.demo.processes import DemoError
from tools.demo.stage import Options, Stage
from tools.demo.story import Story

FOLDER: Final = ".demo"
_LOCK: Final = "demo.lock"
"""Also the sign that a folder is the demo's own, and may be emptied."""


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    folder = Path(args.dir).absolute()
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _interrupt)
    try:
        if folder.is_dir() and any(folder.iterdir()) and not (folder / _LOCK).exists():
            raise DemoError(f"{folder} is not empty and not of a demo: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_file(str(folder / _LOCK))
    except (DemoError, OSError) as error:
        print(f"dev demo: {error}", file=sys.stderr)
        return 2
    except DirectoryLockedError:
        print(f"dev demo: another demo runs in {folder}", file=sys.stderr)
        return 2
    try:
        from tools.demo.acts import AGAIN, STORY

        stage = Stage(folder, Options(args.seconds, args.rate, args.seed), Story())
        if not args.again:
            _empty(folder)
        (folder / "logs").mkdir(exist_ok=True)
        return perform(stage, AGAIN if args.again else STORY, again=args.again)
    finally:
        lock.release()


def perform(stage: Stage, acts: tuple[ModuleType, ...], *, again: bool = False) -> int:
    """The exit code: 0 when all that the story claims was seen."""
    story = stage.story
    try:
        if again:
            stage.read_facts()
        for act in acts:
            story.act(act.TITLE)
            act.play(stage)
    except (DemoError, TidelogError) as error:
        story.bad(f"the demo has failed: {error}")
        story.say(f"logs are in {stage.folder / 'logs'}, Spark's is {stage.folder / 'work' / 'spark.log'}")
        return 1
    except KeyboardInterrupt:
        story.bad("interrupted: every process of the demo is ended")
        return 130
    finally:
        stage.end()
    return _epilogue(stage)


def _epilogue(stage: Stage) -> int:
    story = stage.story
    story.act("The end")
    if stage.wrong:
        for text in stage.wrong:
            story.bad(f"does not hold: {text}")
        story.say(f"all of it is in {stage.folder}, logs in {stage.folder / 'logs'}")
        return 1
    story.good(f"all of it held, in {story.elapsed_s():.0f} s; everything is kept in {stage.folder}")
    story.say("take something from a table there and run `./dev demo --again`: the audit sees it")
    return 0


def _empty(folder: Path) -> None:
    for one in folder.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        elif one.name != _LOCK:
            one.unlink()


def _interrupt(signum: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev demo",
        description="A node, a shop that writes to it, a pipeline into lake tables, a kill -9 of both in the middle, "
        "and an audit that must balance. Exit code 1 when something does not hold.",
    )
    parser.add_argument("--dir", default=FOLDER, help=f"where everything is put and kept (default: {FOLDER})")
    parser.add_argument("--seconds", type=_positive, default=60.0, help="how long the shop is open at least (60)")
    parser.add_argument("--rate", type=_positive, default=300.0, help="records a second (300)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens in the shop (1)")
    parser.add_argument(
        "--again", action="store_true", help="only the audit, the tables and the report of the last demo"
    )
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
