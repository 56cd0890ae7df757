"""Reading the keys of one section of a pipeline: each by its type, with a fault for what does not fit.

A getter that finds a fault notes it and returns the default, so that one reading finds all faults. `done` refuses
the keys that nobody asked for; the names that were asked for are the allowed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from tidelog.spark.pipeline.durations import FORM, parse_ms
from tidelog.spark.pipeline.faults import Fault, Path, allowed
from tidelog.spark.pipeline.tree import Items, Keys, Text, Value

T = TypeVar("T", bound=str)
_BOOLEANS: Final = {"true": True, "false": False}
_SIZES: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1}


class Section:
    def __init__(self, value: Value | None, path: Path, faults: list[Fault], lines: dict[Path, int]) -> None:
        self.path = path
        self._faults = faults
        self._lines = lines
        self._asked: list[str] = []
        self._values: dict[str, Value] = {}
        self._line = value.line if value is not None else lines.get(path)
        if isinstance(value, Keys):
            for name, inner, line in value.entries:
                self._values[name] = inner
                if line is not None:
                    lines[*path, name] = line
        elif value is not None and not _is_null(value):
            self.fault((), f"must be a section of keys, not {_shape(value)}")
        self._open = value is None or isinstance(value, Keys) or _is_null(value)  # else one fault says it all

    # What was found

    def fault(self, path: Path, text: str) -> None:
        whole = (*self.path, *path)
        line = next((self._lines[whole[:n]] for n in range(len(whole), 0, -1) if whole[:n] in self._lines), self._line)
        self._faults.append(Fault(whole, text, line))

    def has(self, name: str) -> bool:
        return name in self._values and not _is_null(self._values[name])

    def is_section(self, name: str) -> bool:
        return isinstance(self._values.get(name), Keys)

    @property
    def names(self) -> list[str]:
        return list(self._values)

    def need(self, name: str, example: str) -> None:
        if self._open and not self.has(name):
            self.fault((), f"the key {name!r} is missing, such as {name}: {example}")

    def done(self) -> None:
        for name in self._values:
            if name not in self._asked:
                self.fault((name,), f"there is no such key; {allowed(name, self._asked)}")

    # By type

    def text(self, name: str) -> str | None:
        found = self._get(name)
        if found is None:
            return None
        if not isinstance(found, Text):
            self.fault((name,), f"must be a text, not {_shape(found)}")
            return None
        if not found.value.strip():
            self.fault((name,), "must not be empty")
            return None
        return found.value

    def choice(self, name: str, choices: Sequence[T], default: T) -> T:
        text = self.text(name)
        for choice in choices:
            if text == choice:
                return choice
        if text is not None:
            self.fault((name,), f"{self._raw(name)!r} is not one of its values; {allowed(text, choices)}")
        return default

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in _BOOLEANS:
            self.fault((name,), f"{self._raw(name)!r} is neither true nor false")
        return _BOOLEANS.get(text.lower(), default)

    def duration_ms(self, name: str, default: int, least_ms: int = 1) -> int:
        text = self.text(name)
        if text is None:
            return default
        found = parse_ms(text)
        if found is None:
            self.fault((name,), f"{self._raw(name)!r} is no duration; write {FORM}")
        elif found < least_ms:
            self.fault((name,), f"{self._raw(name)!r} is too short; at least {least_ms}ms")
        else:
            return found
        return default

    def count(self, name: str, default: int | None, least: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
            self.fault((name,), f"{self._raw(name)!r} is not a whole number of at least {least}")
            return default
        return int(text)

    def size(self, name: str, default: int | None) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        unit = next((unit for unit in _SIZES if text.endswith(unit)), "")
        number = text.removesuffix(unit).strip()
        if not (unit and number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 0):
            self.fault((name,), f"{self._raw(name)!r} is no size; write a number with a unit (B, KiB, MiB, GiB)")
            return default
        return int(number) * _SIZES[unit]

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; a single one needs no brackets."""
        found = self._get(name)
        if found is None:
            return ()
        values: list[str] = []
        for item in (found,) if isinstance(found, Text) else found.values if isinstance(found, Items) else ():
            if isinstance(item, Text) and item.value.strip() and not item.null:
                values.append(item.value)
            else:
                self.fault((name,), "each item must be a text that is not empty")
        if isinstance(found, Keys):
            self.fault((name,), f"must be a list of texts, not {_shape(found)}")
        elif not values and isinstance(found, Items) and not found.values:
            self.fault((name,), "must not be empty")
        return tuple(dict.fromkeys(values))

    def durations_ms(self, name: str) -> tuple[int, ...]:
        """A list of durations, of which two may be the same; a single one needs no brackets."""
        found = self._get(name)
        items = found.values if isinstance(found, Items) else () if found is None else (found,)
        durations = [parse_ms(item.value) if isinstance(item, Text) else None for item in items]
        if None in durations or 0 in durations or (isinstance(found, Items) and not items):
            self.fault((name,), f"must be a list of durations, each {FORM}")
        return tuple(duration for duration in durations if duration)

    def pairs(self, name: str) -> dict[str, str]:
        """Free keys, each with a text."""
        inner = self.section(name)
        return {key: text for key in inner.names if (text := inner.text(key)) is not None}

    def section(self, name: str) -> Section:
        found = self._get(name)
        return Section(found, (*self.path, name), self._faults, self._lines)

    # Within

    def _get(self, name: str) -> Value | None:
        if name not in self._asked:
            self._asked.append(name)
        found = self._values.get(name)
        return None if found is None or _is_null(found) else found

    def _raw(self, name: str) -> str:
        found = self._values[name]
        return found.raw if isinstance(found, Text) else ""


def _is_null(value: Value) -> bool:
    return isinstance(value, Text) and value.null


def _shape(value: Value) -> str:
    return {Text: "a text", Items: "a list", Keys: "a section of keys"}[type(value)]
