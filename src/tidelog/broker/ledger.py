"""What peers can make the node hold, each kind with a limit, a gauge and a way out when the limit is reached.

Bytes that a connection keeps (an unfinished request, an answer that is not taken) stand in an Account. At its limit
nobody gets more and whoever wants some waits in line; a second later the longest holder is cut off, so peers that
never finish cannot keep the others waiting. At twice the limit that happens at once. Knows nothing of sockets: a holder
is something that can be cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

MIB: Final = 1 << 20
REQUEST_BYTES_MAX: Final = 128 * MIB
"""Where queued.max.request.bytes is -1. Not less than the largest request (socket.request.max.bytes)."""
ANSWER_BYTES_MAX: Final = 128 * MIB
PARKED_BYTES_MAX: Final = 128 * MIB
PARKED_REQUEST_BYTES: Final = 4096
PARKED_PARTITION_BYTES: Final = 512
"""What a request that waits, and each partition that it names, is taken to cost."""
SESSION_PARTITIONS_MAX: Final = 400_000
STALE_S: Final = 1.0
"""How long somebody may keep others waiting."""


class Holder(Protocol):
    def cut_off(self, what: str) -> None: ...


class Resource:
    """So many are in use, so many may be."""

    __slots__ = ("limit", "name", "refused", "used")

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.used = 0
        self.refused = 0
        """How often somebody was turned away, or cut off, because of the limit."""

    @property
    def is_full(self) -> bool:
        return self.used >= self.limit

    @property
    def left(self) -> int:
        return max(self.limit - self.used, 0)


class Account(Resource):
    """Bytes and who holds them, the longest holder first."""

    __slots__ = ("_holders", "_monotonic_s", "_waiting")

    def __init__(self, name: str, limit: int, monotonic_s: Callable[[], float]) -> None:
        super().__init__(name, limit)
        self._monotonic_s = monotonic_s
        self._holders: dict[Holder, tuple[int, float]] = {}
        self._waiting: dict[Holder, Callable[[], None]] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """The holder has so many bytes now, all in all. Since when counts from its first one."""
        before = self._holders.get(holder)
        if before is None:
            if size:
                self._holders[holder] = size, self._monotonic_s()
                self.used += size
        elif size:
            self._holders[holder] = size, before[1]
            self.used += size - before[0]
        else:
            del self._holders[holder]
            self.used -= before[0]
        while self.used > 2 * self.limit and (oldest := next(iter(self._holders))) is not holder:
            self._cut_off(oldest)
        if self._waiting and not self.is_full:
            self._wake()

    def wait(self, holder: Holder, resume: Callable[[], None]) -> None:
        """Call resume once there is room."""
        self._waiting.setdefault(holder, resume)

    def forget(self, holder: Holder) -> None:
        """It is gone, with all that it held."""
        self._waiting.pop(holder, None)
        if holder in self._holders:
            self.hold(holder, 0)

    def enforce(self) -> None:
        """Called by the clock: who keeps others waiting for too long is cut off, the longest holder first."""
        limit_s = self._monotonic_s() - STALE_S
        while self._waiting and self.is_full:
            oldest, (_, since_s) = next(iter(self._holders.items()))
            if since_s > limit_s:
                break
            self._cut_off(oldest)
        self._wake()

    def _cut_off(self, holder: Holder) -> None:
        size, _ = self._holders.pop(holder)
        self._waiting.pop(holder, None)
        self.used -= size
        self.refused += 1
        holder.cut_off(self.name.replace("_", " "))

    def _wake(self) -> None:
        # Each once: who finds no room after all goes to the end of the line.
        for holder in list(self._waiting):
            if self.is_full:
                break
            resume = self._waiting.pop(holder, None)
            if resume is not None:
                resume()


class Ledger:
    """One for the node, over all listeners."""

    def __init__(
        self,
        monotonic_s: Callable[[], float],
        *,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        connections_max: int = 2**31 - 1,
    ) -> None:
        self.request_bytes = Account("request_bytes", request_bytes_max, monotonic_s)
        """Unfinished requests (queued.max.request.bytes)."""
        self.answer_bytes = Account("answer_bytes", answer_bytes_max, monotonic_s)
        """Answers that their peers have not taken yet."""
        self.parked_bytes = Resource("parked_bytes", PARKED_BYTES_MAX)
        """Requests that wait, by an estimate: a fetch that finds no room here is answered with what there is."""
        self.session_partitions = Resource("session_partitions", SESSION_PARTITIONS_MAX)
        """What the fetch sessions remember: a client that finds no room here fetches without a session."""
        self.connections = Resource("connections", connections_max)
        """Not max.connections, but what the process has descriptors for."""

    def resources(self) -> list[Resource]:
        return [self.request_bytes, self.answer_bytes, self.parked_bytes, self.session_partitions, self.connections]

    def enforce(self) -> None:
        self.request_bytes.enforce()
        self.answer_bytes.enforce()
