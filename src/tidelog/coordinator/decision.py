"""What a state machine makes of a request: records to append, and the response that leaves once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidelog.coordinator.moment import Moment
from tidelog.protocol.errors import ErrorCode

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


@dataclass(slots=True, frozen=True)
class Decision(Generic[R, T_co]):
    """`settled` is for state that lives in memory beside the records (classic groups between two generations): it is
    told once, before the response leaves, whether the records were committed (NONE) or why they were not.

    `then` decides what follows once the records are replayed, in the same turn of the loop; the response is that of the
    last decision. Each link of such a chain leaves a state that holds by itself, should the next one never be
    written; its `settled` is told only when it could not be appended."""

    records: Sequence[R]
    response: T_co
    settled: Callable[[ErrorCode, Moment], None] | None = None
    then: Callable[[Moment], Decision[R, T_co]] | None = None


class StateMachine(Protocol[R]):
    """The state of one internal partition. Durable state changes in `replay` and nowhere else."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a kind or version that a newer node wrote. ProtocolError for bytes that are no record."""
        ...

    def replay(self, record: R, offset: int, producer_id: int) -> None:
        """Apply one record; producer_id is -1 outside a transaction."""
        ...

    def end_transaction(self, producer_id: int, committed: bool) -> None: ...

    def loaded(self, now: Moment) -> Iterator[int]:
        """The whole log was replayed: this node answers for the partition when this has ended. Each step gives its
        cost, in units of loading: a small record is one."""
        ...

    def unloaded(self, now: Moment) -> None:
        """Another node answers from now on: send away whoever still waits."""
        ...

    def deadline_ms(self) -> int | None:
        """When tick() wants to be called next."""
        ...

    def tick(self, now: Moment) -> Iterator[Decision[R, None]]:
        """What has become due. Each decision is appended and replayed before the next one is asked for."""
        ...
