"""Text to value and back, by Kafka's rules: what a config file, an environment variable or AlterConfigs may say."""

from __future__ import annotations

import re

from tidelog.metadata.config.key import ConfigError, ConfigKey, Password, Value
from tidelog.metadata.config.validators import expectation, is_allowed

_JAVA_BLANK = "".join(map(chr, range(33)))
_SHOWN_MAX = 200
_BITS = {"int": 31, "short": 15, "long": 63}
_FLOAT = r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)"
_HEX_FLOAT = r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?"


def parse(key: ConfigKey, text: str) -> Value:
    """The typed value, or ConfigError with a sentence such as
    "log.segment.bytes=abc: expected a whole number of at least 1048576"."""
    trimmed = text.strip(_JAVA_BLANK)
    past_type_limit = False
    try:
        value = _typed(key, trimmed)
        if is_allowed(key, value):
            return value
    except OverflowError:
        past_type_limit = True
    except ValueError:
        pass
    raise ConfigError(complaint(key, trimmed, past_type_limit=past_type_limit))


def complaint(key: ConfigKey, text: str, *, past_type_limit: bool = False) -> str:
    shown = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
    if key.sensitive:
        shown = "[hidden]"
    elif not text:
        shown = "(nothing)"
    sentence = f"{key.name}={shown}: expected {expectation(key, past_type_limit=past_type_limit)}"
    if key.type in _BITS and text[:1].isdigit():
        from tidelog.metadata.config.hints import unit_hint

        return sentence + unit_hint(key.name, text)
    return sentence


def _typed(key: ConfigKey, text: str) -> Value:
    match key.type:
        case "boolean":
            return _boolean(text)
        case "int" | "short" | "long":
            return _whole(text, _BITS[key.type])
        case "double":
            return _double(text)
        case "list":
            return _list(key, text)
        case "password":
            return Password(text)
        case "string":
            return text
        case "class":
            # A Java class cannot be loaded here, so any name that could be one is taken.
            if not re.fullmatch(r"[^\W\d]\w*(?:[.$][^\W\d]\w*)*", text):
                raise ValueError(text)
            return text


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _whole(text: str, bits: int) -> int:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError(text)
    # Python refuses to convert thousands of digits, and takes its time for hundreds.
    if len(text) > 30 and len(text.lstrip("+-0")) > 30:
        raise OverflowError(text)
    value = int(text)
    if not -(1 << bits) <= value < 1 << bits:
        raise OverflowError(text)
    return value


def _double(text: str) -> float:
    if re.fullmatch(_HEX_FLOAT, text, re.ASCII):
        return float.fromhex(text.rstrip("fFdD") if "p" in text.lower() else text)
    if not re.fullmatch(_FLOAT, text, re.ASCII):
        raise ValueError(text)
    return float(text.rstrip("fFdD"))


def _list(key: ConfigKey, text: str) -> tuple[str, ...]:
    if not text:
        return ()
    items = re.split(r"\s*,\s*", text, flags=re.ASCII)
    # KIP-1161: a repeated item is dropped, an empty one is refused (by the validator).
    return tuple(dict.fromkeys(items)) if key.validator.startswith("list") else tuple(items)


def to_text(value: Value) -> str | None:
    """The value as Kafka prints it, in DescribeConfigs for one."""
    match value:
        case None:
            return None
        case Password():
            return "[hidden]"
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = _decimal_parts(value)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _decimal_parts(value: float) -> tuple[str, str, int]:
    mantissa, _, power = repr(value).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or 0) + len(whole) - 1
    if whole == "0":
        exponent = int(power or 0) - (len(fraction) - len(fraction.lstrip("0"))) - 1
    return sign, digits.rstrip("0") or "0", exponent
