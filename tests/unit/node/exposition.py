"""A strict reader of Prometheus' text format 0.0.4: anything that a scraper would refuse or misread raises."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|\+Inf|-Inf|NaN))")
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Labels = frozenset[tuple[str, str]]


class Exposition(NamedTuple):
    kinds: dict[str, str]
    samples: dict[tuple[str, Labels], float]

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def names(self) -> set[str]:
        return set(self.kinds)


def parse(text: str) -> Exposition:
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    helped: set[str] = set()
    samples: dict[tuple[str, Labels], float] = {}
    current = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in helped, f"{current} is described twice"
            helped.add(current)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and name not in kinds and kind in ("gauge", "counter", "histogram")
            kinds[name] = kind
        else:
            match = _SAMPLE.fullmatch(line)
            assert match is not None, f"no sample: {line!r}"
            suffixes = ("_bucket", "_sum", "_count") if kinds[current] == "histogram" else ("",)
            assert match[1] in {current + suffix for suffix in suffixes}, f"{match[1]} lies among those of {current}"
            key = (match[1], _labels(match[2]))
            assert key not in samples, f"{key} is given twice"
            samples[key] = float(match[3])
    return Exposition(kinds, samples)


def _labels(text: str | None) -> Labels:
    found: list[tuple[str, str]] = []
    position = 0
    while text and position < len(text):
        match = _LABEL.match(text, position)
        assert match is not None, f"no labels: {text!r}"
        found.append((match[1], re.sub(r"\\.", lambda escape: _ESCAPES[escape[0]], match[2])))
        position = match.end()
    assert len({name for name, _ in found}) == len(found)
    return frozenset(found)
