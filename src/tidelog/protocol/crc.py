"""CRC-32C, from the C module of the package `crc32c`.

The package asks for its own version when it is imported, which reads metadata with `email` and takes about a
twenty-fifth of the CPU of a node's start. So its C module is loaded without it; where that is not found, the package is
imported as it comes.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_PACKAGE: Final = "crc32c"
_C_MODULE: Final = "crc32c._crc32c"


def load(find: Callable[..., ModuleSpec | None] = PathFinder.find_spec) -> ModuleType:
    package = find(_PACKAGE)
    places = None if package is None else package.submodule_search_locations
    found = None if places is None else find(_C_MODULE, places)
    if found is None or not isinstance(found.loader, ExtensionFileLoader):
        import crc32c

        return crc32c
    module = found.loader.create_module(found)
    found.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:
    crc32c = load().crc32c
