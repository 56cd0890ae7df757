"""The ports through which Tidelog touches the world: clock, disk, network, workers.

`tidelog.runtime` implements them on the operating system, `tidelog.sim` in memory on virtual time. Nothing above these
two knows which one it was given; randomness is a `random.Random` handed in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from ssl import SSLContext

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as records and retention use them; it may step back."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back, for deadlines and durations. Only differences mean something: hand those to the
        loop's call_later, never a sum to call_at, whose zero may be another."""
        ...


class FileSlice(Protocol):
    """Bytes of a file, to be sent from there by a FileSender: nobody has read them. Its file may be closed or removed
    meanwhile: what was lent stays as long as somebody has it."""

    def __len__(self) -> int: ...

    def read(self) -> bytes:
        """For who cannot send them so."""
        ...


Part: TypeAlias = Buffer | FileSlice


class File(Protocol):
    """An open file: appends at its end, reads anywhere. Not a descriptor: the disk may close and reopen that."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write all parts at the end; the number of bytes that fitted, fewer than given when the disk is full."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """Up to length bytes from position, fewer at the end of the file."""
        ...

    def read_now(self, position: int, length: int) -> bytes | memoryview | None:
        """The same, but None when that would wait for the disk (Disk.read_later does not mind). Where the system cannot
        tell, it reads as read does."""
        ...

    def lend(self, position: int, length: int) -> FileSlice | None:
        """The bytes where they are, if they seem to be in memory and the system can send them from there; None means
        that they must be read. They lie within the file, and nobody changes them."""
        ...

    @property
    def truncations(self) -> int:
        """How often the file was truncated: bytes that were read before may be others now."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Block until the content is durable. For starting and stopping; while serving, use Disk.sync."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Files and directories. Paths are strings with `/`; a name made by create, rename or remove is durable only after
    its directory is synced, content only after its file is. Failures are DiskError."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def read_file(self, path: str) -> bytes | None:
        """The whole of a small file, None when there is none."""
        ...

    def replace_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write `path.tmp`, sync it, rename it over path, sync the directory: the old or the new content, never a mix.
        With durable=False nothing is synced (still never a mix after a mere process crash)."""
        ...

    def replace_files(self, files: Sequence[tuple[str, bytes]]) -> Awaitable[None]:
        """replace_file for each (path, content), durable, beside the loop. Of two calls for one path the later one
        wins, whichever ends first, and so does a replace_file that comes in between."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Names in sorted order."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is gone already."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def remove_later(self, paths: Sequence[str]) -> Awaitable[None]:
        """remove or remove_tree for each, beside the loop: to free the pages and blocks of a large file takes tens of
        milliseconds."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the content last changed, in milliseconds since 1970."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> Awaitable[None]:
        """Complete once all that was appended to the files, and every name made in the directories, before the call is
        durable. The loop is never blocked. After a failure nothing of the round may be believed, then or later."""
        ...

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """The same, blocking: for starting and stopping, where many logs are synced in one go."""
        ...

    def read_later(self, file: File, position: int, length: int) -> Awaitable[bytes]:
        """What read gives, without blocking the loop. The file may be closed, removed or truncated meanwhile: then the
        bytes are old ones, or fewer."""
        ...

    def lock(self, path: str) -> Lock:
        """Hold an exclusive lock on the file, or raise DirectoryLockedError."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """(all bytes, free bytes) of the file system that holds the path."""
        ...


class Listener(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Accept no more. Connections stay."""
        ...


class SocketOptions(NamedTuple):
    """Of a listener and of the connections that it accepts."""

    backlog: int = 1024
    """How many may wait to be accepted (the system may allow fewer)."""
    send_bytes: int = -1
    """The system's send buffer; -1 leaves it to the system, which adapts it."""
    receive_bytes: int = -1


class FileSender(Protocol):
    """A second way into a connection's socket: what is lent goes from the file to it, without a copy."""

    @property
    def unsent_bytes(self) -> int: ...

    def send(self, parts: Sequence[Part], turn_bytes: int) -> bool:
        """Send them in this order, once the transport has nothing left to send and this has not, about so many bytes in
        a turn of the loop. False when some must follow: then the callback is called when all has left, and nothing may
        be written until then. An error aborts the connection."""
        ...

    def close(self) -> None: ...


class Net(Protocol):
    """Byte streams in asyncio's Protocol and Transport interfaces (BufferedProtocol included)."""

    async def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
        options: SocketOptions = ...,
    ) -> Listener:
        """Port 0 chooses one. An empty host is every address of the machine. ListenError when it cannot be."""
        ...

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], tls: SSLContext | None = None
    ) -> asyncio.Transport:
        """ConnectionError or OSError when nobody answers, or (SSLError is one) when TLS does not come about."""
        ...

    def file_sender(self, transport: asyncio.Transport, sent: Callable[[], None]) -> FileSender | None:
        """To be closed when the connection is lost. None where there is no such thing, or no room for one more."""
        ...


class Workers(Protocol):
    """Heavy or blocking work beside the loop: native code that releases the GIL, or blocking I/O."""

    async def run(self, function: Callable[[], T]) -> T: ...


class Job(Protocol):
    """Work in steps that computes in Python and takes long. Before its first step it is made of plain values: it can be
    sent to another process."""

    def prepare(self) -> None:
        """Load what the steps need, native code for one, which may have to be compiled first."""
        ...

    def step(self, disk: Disk, give_way: Callable[[], None]) -> object:
        """Do some more; what that is, whoever made the job knows. `give_way` is to be called between pieces of a
        fraction of a millisecond: then others have their turn."""
        ...


class RunningJob(Protocol):
    async def step(self) -> object:
        """The job's next step, beside the loop. A TidelogError that it raises is raised here; anything else is a bug,
        and comes as a JobFailedError."""
        ...

    async def close(self) -> None:
        """Nothing more is asked of it; a step under way is not waited for where it can be ended."""
        ...


class Jobs(Protocol):
    """Where jobs run: a helper process, because Python in a thread would keep the loop waiting (the GIL)."""

    async def start(self, job: Job) -> RunningJob: ...

    async def rest(self) -> None:
        """No job for a while: let go of what was kept for the next one."""
        ...
