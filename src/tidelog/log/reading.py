"""How the log's files are read: waiting for the disk, or not.

What serves clients on the loop reads `at_once`: bytes that are not in memory raise WouldBlock, which names them.
Whoever caught it has them read elsewhere and tries again from the start with `Brought`, which knows them; the log may
have changed meanwhile, so nothing of the first try is kept. Starting, stopping and tools read `waiting`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, TypeVar

from tidelog.kernel.errors import DiskError, TidelogError
from tidelog.kernel.ports import Disk, File

T = TypeVar("T")
Read: TypeAlias = Callable[[File, int, int], bytes | memoryview]
"""(file, position, length): so many bytes, fewer at the end of the file."""
_TRIES_MAX: Final = 1000


class WouldBlock(TidelogError):
    """These bytes are not in memory."""

    def __init__(self, file: File, position: int, length: int) -> None:
        super().__init__(f"{length} bytes at {position} of {file.path} are not in memory")
        self.file = file
        self.position = position
        self.length = length


def waiting(file: File, position: int, length: int) -> bytes | memoryview:
    return file.read(position, length)


def at_once(file: File, position: int, length: int) -> bytes | memoryview:
    data = file.read_now(position, length)
    if data is None:
        raise WouldBlock(file, position, length)
    return data


class _Piece(NamedTuple):
    file: File
    truncations: int
    size: int
    start: int
    end: int
    data: bytes


class Brought:
    """Reads at once, from the pieces that were brought for one request as well."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []

    def expect(self, missing: WouldBlock) -> Callable[[bytes], None]:
        """To be called before the bytes are read: what changes the file from now on makes them worthless."""
        file, start = missing.file, missing.position
        truncations, size = file.truncations, file.size()

        def keep(data: bytes) -> None:
            self._pieces.append(_Piece(file, truncations, size, start, start + missing.length, data))

        return keep

    def __call__(self, file: File, position: int, length: int) -> bytes | memoryview:
        for piece in self._pieces:
            if piece.file is not file or not piece.start <= position <= position + length <= piece.end:
                continue
            start = position - piece.start
            is_whole = start + length <= len(piece.data) or piece.size == file.size()
            if is_whole and piece.truncations == file.truncations:
                return memoryview(piece.data)[start : start + length]
        return at_once(file, position, length)


async def bring(disk: Disk, action: Callable[[Read], T], note: Callable[[int], None] = lambda size: None) -> T:
    """What the action gives once all that it reads is there; it begins again each time that bytes have come. `note` is
    told how many."""
    brought = Brought()
    for _ in range(_TRIES_MAX):
        try:
            return action(brought)
        except WouldBlock as missing:
            keep = brought.expect(missing)
            try:
                data = await disk.read_later(missing.file, missing.position, missing.length)
            except DiskError as error:
                return action(_failing(error))
            note(len(data))
            keep(data)
    return action(waiting)


def _failing(error: DiskError) -> Read:
    """The action hears of the error where it reads, as if it had waited itself."""

    def read(file: File, position: int, length: int) -> bytes:
        raise error

    return read
