"""Times as people write them on a command line: dates, milliseconds, durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from tidelog.cli.common import UsageError

_ISO_DURATION: Final = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.I
)
_SHORT_DURATION: Final = re.compile(
    r"(?:(?P<w>\d+)w)?(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
)
_SECONDS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from `2026-01-31`, `2026-01-31T12:00:00.000` (UTC unless it names a zone) or a number."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time; expected YYYY-MM-DDTHH:MM:SS (UTC, or with a zone such as +02:00) "
            "or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """Milliseconds from `P1DT2H30M` (ISO 8601) or `1d2h30m`."""
    found = _ISO_DURATION.fullmatch(text) or _SHORT_DURATION.fullmatch(text)
    parts = {unit: value for unit, value in found.groupdict().items() if value is not None} if found else {}
    if not parts:
        raise UsageError(f"{text!r} is not a duration; expected PnDTnHnMnS such as PT1H30M, or 1h30m")
    return round(sum(float(value) * _SECONDS[unit] for unit, value in parts.items()) * 1000)


def format_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
