"""Regular expressions of subscriptions (KIP-848): what a client may ask for, and which topics it means.

The pattern comes from a client, so it must not be able to hold the node: RE2 matches in time linear in the name and the
size of the compiled pattern, whatever the pattern says, and both sizes and the memory have a bound. Java's brokers take
the same language (RE2J). Knows nothing of groups. Many names are matched in slices (chores.py): ten thousand of them,
or a large pattern, take longer than others may be kept waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tidelog.coordinator.chores import Work
from tidelog.kernel.errors import TidelogError

PATTERN_LENGTH_MAX: Final = 16_384
"""In bytes of UTF-8. To compile takes a few milliseconds at most."""
PROGRAM_SIZE_MAX: Final = 5_000
"""Instructions of RE2: what a name is matched against. A character of a literal is one, a dot about eight."""
_MEMORY_MAX: Final = 8 << 20
_STEPS_A_UNIT: Final = 100
"""Instructions, each held against one byte of a name, in about a microsecond where the pattern is of the worst kind."""


class InvalidPattern(TidelogError):
    """As one sentence that says why."""


class Pattern:
    __slots__ = ("_fullmatch", "_size", "text")

    def __init__(self, text: str, compiled: Any) -> None:
        self.text = text
        self._fullmatch = compiled.fullmatch
        self._size: int = compiled.programsize

    def matches(self, name: str) -> bool:
        """Whether the whole pattern describes the name, from its first to its last character."""
        return bool(self._fullmatch(name))

    def cost(self, name: str) -> int:
        """Of one match, at worst."""
        return 3 + len(name) * self._size // _STEPS_A_UNIT

    def matching(self, names: Iterable[str]) -> Work[frozenset[str]]:
        """Those that it matches."""
        found: list[str] = []
        for name in names:
            if self.matches(name):
                found.append(name)
            yield self.cost(name)
        return frozenset(found)


def compile_pattern(text: str) -> Pattern:
    # At the first pattern: a node without such subscriptions never needs it.
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        size = len(text.encode())
        if size > PATTERN_LENGTH_MAX:
            raise InvalidPattern(f"the pattern has {size} bytes; {PATTERN_LENGTH_MAX} are allowed")
        compiled = re2.compile(text, options)
    except UnicodeEncodeError:
        raise InvalidPattern("the pattern is not valid Unicode") from None
    except re2.error as error:
        raise InvalidPattern(_reason(error)) from None
    if compiled.programsize > PROGRAM_SIZE_MAX:
        raise InvalidPattern(f"the pattern is too large: {compiled.programsize} steps; {PROGRAM_SIZE_MAX} are allowed")
    return Pattern(text, compiled)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else b""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
