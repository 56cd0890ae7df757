"""The rules of kafka.tsv: is a parsed value allowed, and what is, in words.

-                       anything
range LOW HIGH [or N]   a number, either bound may be *
in A|B, nocase A|B      one of these words (nocase: in any case)
list empty|filled null|set A|B     a list; may it be empty, may it be absent, of which items (* any)
filled, set             a string that is not empty; that is not absent
voters, hosts, throttled, reset, host-port    the forms below
"""

from __future__ import annotations

import re

from tidelog.metadata.config.key import ConfigKey, Value

_PORT = r"(?:6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]\d{4}|\d{1,4})"
_HOST_PORT = rf"(?:\[[0-9a-fA-F:.%]+\]|[^\s:@\[\]]+):{_PORT}"
_FORMS: dict[str, tuple[str, str]] = {
    "voters": (rf"\d+@{_HOST_PORT}", "a comma-separated list of id@host:port"),
    "hosts": (_HOST_PORT, "a comma-separated list of host:port"),
    "throttled": (r"\d+:\d+", "a comma-separated list of partition:broker, or *"),
    "reset": (
        r"earliest|latest|by_duration:P(?=\d|T)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?",
        "earliest, latest or by_duration: with an ISO 8601 duration such as by_duration:PT1H",
    ),
    "host-port": (_HOST_PORT, "host:port, or nothing to switch it off"),
}
_LIMITS = {"int": 2**31, "short": 2**15, "long": 2**63}
_WORDS = {
    "int": "a whole number",
    "short": "a whole number",
    "long": "a whole number",
    "double": "a number",
    "boolean": "true or false",
    "list": "a comma-separated list",
    "class": "the name of a class",
}


def is_allowed(key: ConfigKey, value: Value) -> bool:
    kind, *args = key.validator.split(" ")
    match kind:
        case "range":
            return _in_range(args, value)
        case "in":
            return value in args[0].split("|")
        case "nocase":
            return isinstance(value, str) and value.upper() in args[0].split("|")
        case "list":
            return _list_allowed(args, value)
        case "filled":
            return value != ""
        case "set":
            return value is not None
        case "voters" | "hosts" | "throttled":
            return value in ((), ("*",)[: kind == "throttled"]) or _all_match(kind, value)
        case "reset":
            return _all_match(kind, value)
        case "host-port":
            return value == "" or _all_match(kind, value)
    return True


def _in_range(args: list[str], value: Value) -> bool:
    if not isinstance(value, (int, float)):
        return False
    low, high, *other = args
    if len(other) == 2 and value == int(other[1]):
        return True
    # NaN passes both comparisons, as it does in Kafka.
    return not (low != "*" and value < float(low)) and not (high != "*" and value > float(high))


def _list_allowed(args: list[str], value: Value) -> bool:
    empty, null, items = args
    if not isinstance(value, tuple):
        return null == "null"
    if not value:
        return empty == "empty"
    return all(item and (items == "*" or item in items.split("|")) for item in value)


def _all_match(form: str, value: Value) -> bool:
    items = value if isinstance(value, tuple) else (str(value),)
    return all(re.fullmatch(_FORMS[form][0], item) for item in items)


def expectation(key: ConfigKey, *, past_type_limit: bool = False) -> str:
    """What the config takes, to be read after "expected"."""
    kind, *args = key.validator.split(" ")
    match kind:
        case "range":
            return _range_words(key, args, past_type_limit)
        case "in" | "nocase":
            return _one_of(args[0].split("|") if kind == "in" else args[0].lower().split("|"))
        case "list":
            return _list_words(args)
        case "filled":
            return "a value that is not empty"
        case "voters" | "hosts" | "throttled" | "reset" | "host-port":
            return _FORMS[kind][1]
    if key.type in _LIMITS and past_type_limit:
        return f"a whole number from {-_LIMITS[key.type]} to {_LIMITS[key.type] - 1}"
    return _WORDS.get(key.type, "a value")


def _range_words(key: ConfigKey, args: list[str], past_type_limit: bool) -> str:
    low, high, *other = args
    if high == "*" and past_type_limit and key.type in _LIMITS:
        high = str(_LIMITS[key.type] - 1)
    words = _WORDS[key.type]
    if high == "*":
        words += f" of at least {low}"
    elif low == "*":
        words += f" of at most {high}"
    else:
        words += f" from {low} to {high}"
    return words + (f", or {other[1]}" if other else "")


def _list_words(args: list[str]) -> str:
    empty, _, items = args
    if items == "*":
        return ("" if empty == "empty" else "one or more ") + "items separated by commas, none of them empty"
    choices = f"{_one_of(items.split('|'))}, or a comma-separated list of them"
    return choices + (", or nothing" if empty == "empty" else "")


def _one_of(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
