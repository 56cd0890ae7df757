"""The event loop of a real node: uvloop where it is installed, asyncio's own elsewhere (Windows, PyPy)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run main to its end on a new loop. Works in any thread; signal handlers are the caller's business."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
