"""What a directory of Apache Kafka may hold and nothing here acts on yet: ACLs, quotas, credentials, delegation tokens.

Such records are carried: kept in the image under what they are about, written to the next snapshot as they came, taken
away by their removals. Refusing them would refuse the directory, dropping them would lose them on the way back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from tidelog.protocol.messages import records_metadata as r

Identity: TypeAlias = tuple[str, *tuple[Any, ...]]
QUOTA: Final = "client quota"
ACL: Final = "ACL"
SCRAM: Final = "SCRAM credential"
TOKEN: Final = "delegation token"
# In the order in which Apache Kafka writes them, the producer ids between the first and the second.
KINDS: Final = (QUOTA, ACL, SCRAM, TOKEN)


def carry(carried: dict[Identity, Any], record: Any) -> None:
    """Keep the record in place of the one it follows, or take that away."""
    match record:
        case r.ClientQuotaRecord():
            # Its removal is a record of the same kind.
            _put(carried, _quota(record), None if record.remove else record)
        case r.AccessControlEntryRecord():
            _put(carried, (ACL, record.id), record)
        case r.RemoveAccessControlEntryRecord():
            _put(carried, (ACL, record.id), None)
        case r.UserScramCredentialRecord():
            _put(carried, (SCRAM, record.name, record.mechanism), record)
        case r.RemoveUserScramCredentialRecord():
            _put(carried, (SCRAM, record.name, record.mechanism), None)
        case r.DelegationTokenRecord():
            _put(carried, (TOKEN, record.token_id), record)
        case r.RemoveDelegationTokenRecord():
            _put(carried, (TOKEN, record.token_id), None)
        case _:
            raise AssertionError(record)


def carried_of(carried: Mapping[Identity, Any], kind: str) -> Iterator[Any]:
    """The records of one kind, in the order of what they are about."""
    for identity in sorted(identity for identity in carried if identity[0] == kind):
        yield carried[identity]


def count_by_kind(carried: Mapping[Identity, Any]) -> dict[str, int]:
    counts = Counter(identity[0] for identity in carried)
    return {kind: counts[kind] for kind in KINDS if counts[kind]}


def _put(carried: dict[Identity, Any], identity: Identity, record: Any | None) -> None:
    if record is None:
        carried.pop(identity, None)
    else:
        carried[identity] = record


def _quota(record: r.ClientQuotaRecord) -> Identity:
    # A name of null is everybody of that type without a quota of their own.
    entity = sorted((part.entity_type, part.entity_name is not None, part.entity_name or "") for part in record.entity)
    return (QUOTA, tuple(entity), record.key)
