"""What peers can make the node hold, each kind with a limit, a gauge and a way out when the limit is reached.

Bytes that a connection keeps (an unfinished request, an answer that is not taken) stand in an Account. At its limit
answers become small and large requests wait; who holds for seconds while others wait is cut off. At twice the limit the
longest holders are cut off at once, so peers that never finish cannot keep the others waiting. Knows nothing of
sockets: a holder is something that can be cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from tidelog.broker.outbox import Outbox

MIB: Final = 1 << 20
REQUEST_BYTES_MAX: Final = 128 * MIB
"""Where queued.max.request.bytes is -1. Not less than the largest request (socket.request.max.bytes)."""
ANSWER_BYTES_MAX: Final = 128 * MIB
PARKED_BYTES_MAX: Final = 128 * MIB
PARKED_REQUEST_BYTES: Final = 4096
PARKED_PARTITION_BYTES: Final = 512
"""What a request that waits, and each partition that it names, is taken to cost."""
SESSION_PARTITIONS_MAX: Final = 400_000
TURN_BYTES: Final = 8 * MIB
STALE_S: Final = 3.0
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

    __slots__ = ("_dying", "_dying_bytes", "_holders", "_is_waking", "_monotonic_s", "_soon", "_waiting", "_waits_at")

    def __init__(
        self,
        name: str,
        limit: int,
        monotonic_s: Callable[[], float],
        soon: Callable[[Callable[[], None]], object],
        *,
        waits_at: int | None = None,
    ) -> None:
        super().__init__(name, limit)
        self._waits_at = limit if waits_at is None else waits_at
        self._monotonic_s = monotonic_s
        self._soon = soon
        self._holders: dict[Holder, tuple[int, float]] = {}
        self._dying: dict[Holder, int] = {}
        """Cut off, but their bytes are free only when they are forgotten."""
        self._dying_bytes = 0
        self._waiting: dict[Holder, Callable[[], None]] = {}
        self._is_waking = False

    @property
    def must_wait(self) -> bool:
        """Who wants more has to wait()."""
        return self.used >= self._waits_at

    def hold(self, holder: Holder, size: int) -> None:
        """The holder has so many bytes now, all in all. Since when counts from its first one."""
        if holder in self._dying:
            return
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
        if self.used - self._dying_bytes >= 2 * self.limit:
            self._make_room(2 * self.limit - self.limit // 4, holder)
        self._wake_soon()

    def wait(self, holder: Holder, resume: Callable[[], None]) -> None:
        """Call resume once there is room."""
        self._waiting.setdefault(holder, resume)

    def forget(self, holder: Holder) -> None:
        """It is gone, with all that it held."""
        self._waiting.pop(holder, None)
        self.hold(holder, 0)
        size = self._dying.pop(holder, 0)
        self._dying_bytes -= size
        self.used -= size
        self._wake_soon()

    def enforce(self) -> None:
        """Called by the clock: who keeps others waiting for too long is cut off."""
        limit_s = self._monotonic_s() - STALE_S
        if self._waiting:
            stale = [holder for holder, (_, since_s) in self._holders.items() if since_s <= limit_s]
            # Those that wait themselves are not to blame, unless nobody else is left who could be.
            for holder in [holder for holder in stale if holder not in self._waiting] or stale[:1]:
                self._cut_off(holder)
        self._wake_soon()

    def _make_room(self, most: int, but: Holder) -> None:
        while self.used - self._dying_bytes > most:
            oldest = next(iter(self._holders))
            if oldest is but:
                break
            self._cut_off(oldest)

    def _cut_off(self, holder: Holder) -> None:
        size, _ = self._holders.pop(holder)
        self._waiting.pop(holder, None)
        self._dying[holder] = size
        self._dying_bytes += size
        self.refused += 1
        holder.cut_off(self.name.replace("_", " "))

    def _wake_soon(self) -> None:
        """Not at once: who calls is in the middle of something, and a thousand that wake each other are too deep."""
        if self._waiting and not self._is_waking and not self.must_wait:
            self._is_waking = True
            self._soon(self._wake)

    def _wake(self) -> None:
        """The last who came goes on first: under attack, those that wait for long are those that brought it about. Each
        has one turn; who finds no room after all waits again."""
        self._is_waking = False
        for holder in reversed(list(self._waiting)):
            if self.must_wait:
                break
            resume = self._waiting.pop(holder, None)
            if resume is not None:
                resume()


class Turn:
    """What one turn of the loop hands out, and who waits for the next one, the first first: a thousand connections that
    ask for megabytes must not keep the loop from who asks for little."""

    __slots__ = ("_left", "_soon", "_waiting")

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._left = TURN_BYTES
        self._waiting: dict[Holder, Callable[[], None]] = {}

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

    def spend(self, size: int) -> None:
        if self._left == TURN_BYTES:
            self._soon(self._renew)
        self._left -= size

    def wait(self, holder: Holder, resume: Callable[[], None]) -> None:
        """Only while it is spent."""
        self._waiting.setdefault(holder, resume)

    def _renew(self) -> None:
        self._left = TURN_BYTES
        for holder in list(self._waiting):
            if self.is_spent:
                break
            self._waiting.pop(holder)()


class Ledger:
    """One for the node, over all listeners."""

    def __init__(
        self,
        monotonic_s: Callable[[], float],
        soon: Callable[[Callable[[], None]], object],
        *,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        connections_max: int = 2**31 - 1,
    ) -> None:
        self.request_bytes = Account("request_bytes", request_bytes_max, monotonic_s, soon)
        """Unfinished requests (queued.max.request.bytes)."""
        self.answer_bytes = Account("answer_bytes", answer_bytes_max, monotonic_s, soon, waits_at=2 * answer_bytes_max)
        """Answers that their peers have not taken yet."""
        self.soon = soon
        self.turn = Turn(soon)
        self.outbox = Outbox(soon)
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
