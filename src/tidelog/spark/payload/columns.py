"""From decoded values to an Arrow array, with the rows that do not fit told apart.

Arrow converts a whole batch at once and refuses a whole batch at once: one number too large for its column, and
nothing is built. So a refused batch is halved until the rows at fault stand alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidelog.spark.payload.errors import reason

Build = Callable[[list[Any]], pa.Array]

# What Arrow and Python raise for a value that does not fit its column. MemoryError and the like are not a row's fault.
_UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError, LookupError, AttributeError)


def build_array(values: list[Any], errors: list[str | None], build: Build) -> pa.Array:
    """One entry per value; where a value does not fit, null here and the reason in `errors`."""
    try:
        return build(values)
    except _UNFIT as unfit:
        if not values:
            raise
        if len(values) == 1:
            errors[0] = f"the value does not fit its column: {reason(unfit)}"
            return build([None])
    middle = len(values) // 2
    halves = []
    for part in (slice(0, middle), slice(middle, None)):
        own = errors[part]
        halves.append(build_array(values[part], own, build))
        errors[part] = own
    return pa.concat_arrays(halves)
