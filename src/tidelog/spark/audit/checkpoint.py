"""Up to where a flow claims to have landed: the offsets of the last batch that its checkpoint has committed.

That is the one thing the audit takes from a flow, and only as the question: what is claimed must be in the table.
Spark writes `offsets/N` when batch N begins and `commits/N` when it is done, which is after the table's own commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.spark.audit.errors import AuditError
from tidelog.spark.link import At
from tidelog.spark.offsets import Offsets

_VERSION: Final = "v1"
_WITHOUT_OFFSETS: Final = "{}: the checkpoint has committed a batch whose offsets it does not have"


class _WithoutOffsetsError(AuditError):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What `audit` is to be given."""

    batch: int
    """-1 when none was committed: nothing is claimed."""
    ends: Mapping[At, int]
    topic_ids: Mapping[str, str]
    created_anew: frozenset[str]
    """Topics whose id changed within the batches that the checkpoint still has (Spark keeps 100)."""


def claims_of(checkpoint: str | Path, *, batch: int | None = None) -> list[Claim]:
    """Of every source of the query, in the order in which its plan has them; none when nothing was committed."""
    home = Path(checkpoint)
    last = last_committed(home) if batch is None else batch
    if last < 0:
        return []
    sources = sources_in(home / "offsets" / str(last))
    return [claim_of(home, source=source, batch=last) for source in range(sources)]


def last_committed(checkpoint: str | Path) -> int:
    """The last batch that the checkpoint has committed; -1 when there is none."""
    return max(_batches(Path(checkpoint) / "commits"), default=-1)


def query_of(checkpoint: str | Path) -> str | None:
    """The id of the query that the checkpoint is of."""
    try:
        found = json.loads((Path(checkpoint) / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def claim_of(checkpoint: str | Path, *, source: int = 0, batch: int | None = None) -> Claim:
    """Of a checkpoint directory that this machine sees. A query with several sources has one line for each. `batch`:
    as if that one were the last."""
    home = Path(checkpoint)
    if not home.is_dir():
        raise AuditError(f"{home}: there is no checkpoint; the flow has not run yet, or keeps it elsewhere")
    last = last_committed(home) if batch is None else batch
    if last < 0:
        return Claim(batch=-1, ends={}, topic_ids={}, created_anew=frozenset())
    ends, ids = _read(home / "offsets" / str(last), source)
    changed: set[str] = set()
    for earlier in _batches(home / "offsets"):
        if earlier < last:
            try:
                before = _read(home / "offsets" / str(earlier), source)[1]
            except _WithoutOffsetsError:
                continue  # Spark keeps a hundred: beside a flow that runs, the oldest goes at any moment
            changed |= {topic for topic, one in before.items() if ids.get(topic, one) != one}
    return Claim(batch=last, ends=ends, topic_ids=ids, created_anew=frozenset(changed))


def offsets_of(path: str | Path, *, source: int = 0) -> Mapping[At, int]:
    """What a file of a checkpoint's `offsets` says: the ends of that batch."""
    return _read(Path(path), source)[0]


def sources_in(path: str | Path) -> int:
    """How many sources a file of a checkpoint's `offsets` is of."""
    try:
        return max(1, len(Path(path).read_text().splitlines()) - 2)
    except FileNotFoundError:
        raise AuditError(_WITHOUT_OFFSETS.format(path)) from None


def _batches(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(one.name) for one in directory.iterdir() if one.name.isascii() and one.name.isdecimal())


def _read(path: Path, source: int) -> tuple[Mapping[At, int], Mapping[str, str]]:
    """(ends, topic ids): a line with the version, one of Spark's own, then one for each source."""
    try:
        lines = path.read_text().splitlines()
        if lines[0] != _VERSION:
            raise ValueError(f"its version is {lines[0]!r}, expected {_VERSION}")
        text = lines[2 + source]
        found = Offsets.from_json({} if text == "-" else json.loads(text))
    except FileNotFoundError:
        raise _WithoutOffsetsError(_WITHOUT_OFFSETS.format(path)) from None
    except (ValueError, IndexError, AttributeError, TypeError) as error:
        raise AuditError(f"{path}: not the offsets of the source: {error}") from None
    return found.at, found.ids
