"""A document as a tree of values that know their lines, from YAML or from Python objects.

YAML is composed, never constructed: the text stays text until a key's own type is known, so `yes`, `1e3` and
`2026-11-16` do not turn into something else on the way, and nothing in a file can make an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.spark.pipeline.faults import Fault, Path

_VARIABLE: Final = re.compile(r"\$\{([^{}]*)\}")
_NAME: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Text:
    raw: str  # as it was written: what errors show, so that they never show a secret
    value: str
    line: int | None
    null: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    values: tuple[Value, ...]
    line: int | None


@dataclass(frozen=True, slots=True)
class Keys:
    entries: tuple[tuple[str, Value, int | None], ...]  # name, value, line of the name
    line: int | None


Value = Text | Items | Keys


class Planter:
    """Makes the tree; what cannot be part of one becomes a fault."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.faults: list[Fault] = []
        self._environ = environ

    def text(self, raw: str, line: int | None, path: Path, null: bool = False) -> Text:
        def fill(match: re.Match[str]) -> str:
            if match.start() and raw[match.start() - 1] == "$":
                return match[0]
            named = _NAME.fullmatch(match[1])
            if named is None:
                self.faults.append(
                    Fault(path, f"{match[0]} is no variable; write ${{env:NAME}}, or $${{ for ${{", line)
                )
            elif named[1] not in self._environ:
                self.faults.append(Fault(path, f"the environment variable {named[1]} is not set", line))
            else:
                return self._environ[named[1]]
            return match[0]  # one fault is enough: an empty text would be another

        return Text(raw, _VARIABLE.sub(fill, raw).replace("$${", "${"), line, null)

    def items(self, values: Sequence[Any], line: int | None, path: Path, plant: Callable[[Any, Path], Value]) -> Items:
        return Items(tuple(plant(value, (*path, str(index))) for index, value in enumerate(values)), line)

    def keys(
        self,
        entries: Sequence[tuple[str, Any, int | None]],
        line: int | None,
        path: Path,
        plant: Callable[[Any, Path], Value],
    ) -> Keys:
        kept: dict[str, tuple[str, Value, int | None]] = {}
        for name, value, at in entries:
            if name in kept:
                before = kept[name][2]
                again = "" if before is None else f"; it is on line {before} already"
                self.faults.append(Fault((*path, name), f"the key is given twice{again}", at))
                continue
            kept[name] = (name, plant(value, (*path, name)), at)
        return Keys(tuple(kept.values()), line)
