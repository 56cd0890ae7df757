"""Help for a config that is misspelt, misplaced or has a unit. Imported late: a clean start never needs it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidelog.metadata.config.key import Scope
from tidelog.metadata.config.table import configs_of

_SIZES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_TIMES_MS = (
    (r"ms|millis|milliseconds?", 1),
    (r"s|secs?|seconds?", 1000),
    (r"m|mins?|minutes?", 60_000),
    (r"h|hrs?|hours?", 3_600_000),
    (r"d|days?", 86_400_000),
    (r"w|weeks?", 604_800_000),
)
_NAME_UNITS_MS = {"ms": 1, "millis": 1, "seconds": 1000, "secs": 1000, "minutes": 60_000, "hours": 3_600_000}

_REMOVED = re.compile(
    r"zookeeper\..*|inter\.broker\.protocol\.version|log\.message\.format\.version|message\.format\.version"
    r"|control\.plane\.listener\.name|broker\.id\.generation\.enable|reserved\.broker\.max\.id"
    r"|controlled\.shutdown\.(max\.retries|retry\.backoff\.ms)|(log\.)?message\.downconversion\.enable"
    r"|(log\.)?message\.timestamp\.difference\.max\.ms|auto\.include\.jmx\.reporter|password\.encoder\..*"
    r"|delegation\.token\.master\.key|offsets\.commit\.required\.acks|leader\.imbalance\.per\.broker\.percentage"
    r"|group\.coordinator\.new\.enable"
)


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that looks most like the name, or None when none is close."""
    import difflib

    close = difflib.get_close_matches(name.lower().replace("_", ".").replace("-", "."), list(candidates), 1, 0.8)
    return close[0] if close else None


def unknown(name: str, scope: Scope) -> str:
    """What to say after the name of a config that the scope does not have."""
    if _REMOVED.fullmatch(name):
        return "was removed in Kafka 4.0 and has no effect"
    if scope == "broker" and name in configs_of("topic"):
        synonyms = configs_of("topic")[name].synonyms
        default = f"; its default for all topics is {synonyms[0].name}" if synonyms else ""
        return f"is a config of topics, not of the broker{default}"
    if scope == "topic":
        for key in configs_of("topic").values():
            if any(synonym.name == name for synonym in key.synonyms):
                return f"is a config of the broker; for a topic it is called {key.name}"
    if scope != "broker" and name in configs_of("broker"):
        return f"is a config of the broker, not of a {scope.replace('-', ' ')}"
    close = nearest(name, configs_of(scope))
    return f"is not a known config; did you mean {close}?" if close else "is not a known config"


def unit_hint(name: str, text: str) -> str:
    """For a number with a unit, which Kafka does not take: the number to write instead."""
    match = re.fullmatch(r"(\d+)\s*([a-zA-Z]+)", text)
    if match is None:
        return ""
    number, unit = int(match[1]), match[2].lower()
    wanted = _in_bytes(number, unit) if "bytes" in name else _in_time(name, number, unit)
    return " without a unit" + (f"; {text} is {wanted}" if wanted is not None else "")


def _in_bytes(number: int, unit: str) -> int | None:
    size = re.fullmatch(r"([kmgt]?)i?b?", unit)
    return None if size is None else number << (10 * _SIZES[size[1]])


def _in_time(name: str, number: int, unit: str) -> int | None:
    wanted_ms = _NAME_UNITS_MS.get(name.rpartition(".")[2])
    for pattern, unit_ms in _TIMES_MS:
        if wanted_ms is not None and re.fullmatch(pattern, unit) and number * unit_ms % wanted_ms == 0:
            return number * unit_ms // wanted_ms
    return None
