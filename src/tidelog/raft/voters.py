"""Who votes, as the metadata log itself tells it from kraft.version 1 on (KIP-853): two kinds of control records.

Their values are kept as they came, because a snapshot must hold them again: without them Apache Kafka would take the
directory for one of kraft.version 0 and ask for voters in its settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from tidelog.kernel.errors import ProtocolError, TidelogError
from tidelog.kernel.ports import Buffer
from tidelog.protocol.batch import BatchHeader, iter_records
from tidelog.protocol.codec import decode
from tidelog.protocol.messages.records_control import VotersRecord

KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6
_KEY: Final = Struct(">hh")


class Voters(NamedTuple):
    kraft_version: bytes | None = None
    """The value of the newest KRaftVersion record."""
    voters: bytes | None = None
    """The value of the newest KRaftVoters record."""

    def after(self, batch: Buffer, header: BatchHeader) -> Voters:
        """What is known once a control batch was read too."""
        found = self
        for record in iter_records(batch, header):
            if record.key is None or record.value is None or len(record.key) < _KEY.size:
                continue
            _, kind = _KEY.unpack_from(record.key)
            if kind == KRAFT_VERSION:
                found = found._replace(kraft_version=bytes(record.value))
            elif kind == KRAFT_VOTERS:
                found = found._replace(voters=bytes(record.value))
        return found

    def records(self) -> Iterator[tuple[int, bytes]]:
        """(kind, value) of the control records that say the same again."""
        if self.kraft_version is not None:
            yield KRAFT_VERSION, self.kraft_version
        if self.voters is not None:
            yield KRAFT_VOTERS, self.voters

    def ids(self) -> tuple[int, ...]:
        """Empty when the log does not tell."""
        if self.voters is None:
            return ()
        try:
            return tuple(voter.voter_id for voter in decode(VotersRecord, 0, self.voters).voters)
        except ProtocolError as error:
            raise TidelogError(f"the voters in the metadata log cannot be read: {error}") from None


NO_VOTERS: Final = Voters()


def check_only_voter(node_id: int, voters: tuple[int, ...], directory: str) -> None:
    """One voter of several must not decide alone: the others may have gone on without it."""
    if voters and set(voters) != {node_id}:
        others = ", ".join(str(voter) for voter in sorted(set(voters)))
        raise TidelogError(
            f"the metadata log in {directory} belongs to a quorum of the voters {others}, and this node is {node_id}: "
            "only the directory of a node that is the only voter can be opened"
        )
