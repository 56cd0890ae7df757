"""What becomes of a batch. Numbers, because native code writes them into bytes."""

from __future__ import annotations

from typing import Final

DROP: Final = 0
"""Nothing of it stays, but for its header where that is needed."""
WHOLE: Final = 1
"""All of it, as it is."""
LOOK: Final = 2
"""Its records decide."""
GIVEN: Final = 3
"""A marker: what becomes of it is already known."""
COPY: Final = 4
"""Some of its records; native code makes the batch."""
MAKE: Final = 5
"""Some of its records or only its header; Python makes the batch."""
