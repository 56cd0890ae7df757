"""What can go wrong with a payload, by whose fault it is.

A PayloadError is one record's fault: the permissive mode writes it beside the row. A SchemaError is the caller's (a
schema that has no columns, an option that is not one) and comes before any job. A RegistryError says that nobody can
tell: the registry is away or refuses us, so no row may be called bad.
"""

from __future__ import annotations

# Long enough for a path and a reason, short enough for a column of a million bad rows.
_REASON_CHARS_MAX = 300


class PayloadError(ValueError):
    """This record cannot be read, or this row cannot be written."""


class SchemaError(ValueError):
    """The schema, or what was asked of it, cannot be used."""


class RegistryError(RuntimeError):
    """The registry did not answer, or not as a registry does."""


def reason(error: BaseException) -> str:
    """The error in a line; the class's name where the text alone says too little (EOFError has none)."""
    text = " ".join(str(error).split())
    if not isinstance(error, (PayloadError, SchemaError)):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= _REASON_CHARS_MAX else text[: _REASON_CHARS_MAX - 3] + "..."
