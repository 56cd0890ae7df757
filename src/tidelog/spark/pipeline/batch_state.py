"""What a flow keeps between batches: watermarks, counts, and folders of Parquet files.

One manifest per batch, put in place by a rename after everything else of the batch is done. Batch N starts from the
manifest of N-1, so a batch that is repeated after a crash starts from the same state and comes to the same end.
The state belongs to a query id: a new checkpoint has a new one and begins with nothing.

    KEPT/FLOW/QUERY/N.json              the manifest: which folders are the state after batch N
    KEPT/FLOW/QUERY/N-PART-ATTEMPT/     rows that batch N has added to a part of the state, never written to again
A folder that no manifest names any more is removed, with what attempts have left that died.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelog.kernel.errors import TidelogError
from tidelog.runtime.durable import replace_file, sync_dir, sync_file

KEPT: Final = 2  # Spark repeats only the last batch, which needs the one before it
FOLDERS_MAX: Final = 16  # of a part: beyond that a batch merges the small ones
_FOLDER: Final = re.compile(r"[0-9]+-.+")
_ANEW: Final = "rebuild it with 'tidelog pipeline reprocess', or give the changed flow another name"


class StateError(TidelogError):
    """A state that cannot be continued; the message says what to do."""


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    rows: int
    latest_ms: int | None = None  # the latest event time in it
    sides_ms: dict[str, int] = {}  # the same by side, of a flow with several streams


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    batch: int
    definition: dict[str, Any] = {}
    schemas: dict[str, Any] = {}  # of the parts, as Spark writes them in JSON
    watermark_ms: int | None = None
    sides_ms: dict[str, int] = {}  # watermarks of a flow with several streams
    parts: dict[str, list[Folder]] = {}
    counts: dict[str, int] = {}  # since the first batch

    def count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def folders(self, part: str) -> list[Folder]:
        return self.parts.get(part, [])


@dataclass(frozen=True, slots=True)
class Terms:
    """What a state depends on: another flow could not make sense of it."""

    definition: Mapping[str, Any]  # by the flow's keys, for the message
    schemas: Mapping[str, Any] = field(default_factory=dict)  # of the parts, as Spark writes them in JSON


@dataclass(frozen=True, slots=True)
class BatchState:
    home: Path
    terms: Terms

    def before(self, batch: int) -> Manifest:
        if batch == 0:
            return self.first()
        path = self._manifest(batch - 1)
        if not path.exists():
            raise StateError(f"{self.home} has no state for batch {batch}; it belongs to the checkpoint")
        return self._read(path)

    def first(self) -> Manifest:
        return Manifest(batch=-1, definition=_plain(self.terms.definition), schemas=_plain(self.terms.schemas))

    def last(self) -> Manifest | None:
        found = max(self._batches(), default=None)
        return None if found is None else self._read(self._manifest(found))

    def folder(self, batch: int, attempt: str, part: str) -> Path:
        """Where an attempt at a batch writes: never where another one did."""
        self.home.mkdir(parents=True, exist_ok=True)
        return self.home / f"{batch}-{part}-{attempt}"

    def paths(self, folders: Sequence[Folder]) -> list[str]:
        return [str(self.home / folder.name) for folder in folders]

    def keep(self, manifest: Manifest) -> None:
        path = self._manifest(manifest.batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._sync([folder for folders in manifest.parts.values() for folder in folders], manifest.batch)
        replace_file(str(path), msgspec.json.encode(manifest))
        self._forget(manifest.batch)

    def _read(self, path: Path) -> Manifest:
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        except (msgspec.DecodeError, OSError) as error:
            raise StateError(f"{path} is no state of this version: {error}; {_ANEW}") from None
        wanted = _plain(self.terms.definition)
        changed = sorted(
            key for key in {*wanted, *manifest.definition} if wanted.get(key) != manifest.definition.get(key)
        )
        if changed:
            one = "is not the one" if len(changed) == 1 else "are not those"
            raise StateError(f"the flow's {_and(changed)} {one} its state was made with; {_ANEW}")
        for part, schema in _plain(self.terms.schemas).items():
            if wrong := _unfit(manifest.schemas.get(part, schema), schema, part):
                raise StateError(f"{wrong} is of another type than in the flow's state; {_ANEW}")
        return msgspec.structs.replace(manifest, schemas=_plain(self.terms.schemas))

    def _sync(self, folders: Sequence[Folder], batch: int) -> None:
        """What a manifest names is there after a power cut too. Spark does not see to it."""
        for folder in folders:
            if folder.name.startswith(f"{batch}-"):
                home = self.home / folder.name
                for file in home.iterdir():
                    sync_file(str(file))
                sync_dir(str(home))

    def _forget(self, batch: int) -> None:
        for number in self._batches():
            if number <= batch - KEPT:
                self._manifest(number).unlink(missing_ok=True)
        named: set[str] = set()
        for number in self._batches():
            manifest = msgspec.json.decode(self._manifest(number).read_bytes(), type=Manifest)
            named |= {folder.name for folders in manifest.parts.values() for folder in folders}
        for found in self.home.iterdir():
            if found.is_dir() and _FOLDER.fullmatch(found.name) and found.name not in named:
                shutil.rmtree(found, ignore_errors=True)

    def _manifest(self, batch: int) -> Path:
        return self.home / f"{batch}.json"

    def _batches(self) -> list[int]:
        return [int(path.stem) for path in self.home.glob("*.json") if path.stem.isdigit()]


def read_manifest(home: Path) -> Manifest | None:
    """The last one, whatever it was made with: to look at."""
    found = max(
        (path for path in home.glob("*.json") if path.stem.isdigit()), key=lambda one: int(one.stem), default=None
    )
    return None if found is None else msgspec.json.decode(found.read_bytes(), type=Manifest)


def small_ones(folders: Sequence[Folder]) -> list[Folder]:
    """Those that a batch is to merge into the one it writes: the smaller half, when there are too many. So a row is
    written again about as often as the state doubles, and not with every batch."""
    if len(folders) <= FOLDERS_MAX:
        return []
    return sorted(folders, key=lambda folder: (folder.rows, folder.name))[: len(folders) // 2]


def later(before_ms: int | None, latest_ms: int | None, delay_ms: int) -> int | None:
    """A watermark after a batch: the latest event time so far less the allowed delay; it never goes back."""
    found = [ms for ms in (before_ms, None if latest_ms is None else latest_ms - delay_ms) if ms is not None]
    return max(found, default=None)


def kept_home(work: Path, flow: str) -> Path:
    return work / "kept" / flow


def query_of(checkpoint: Path) -> str | None:
    """The id of the query that the checkpoint is of; None before its first start."""
    try:
        found = json.loads((checkpoint / "metadata").read_text()).get("id")
    except (FileNotFoundError, ValueError, AttributeError):
        return None
    return None if found is None else str(found)


def check_kept(work: Path, flow: str, terms: Terms) -> None:
    """StateError when the state of a flow that has run before is not one that it could go on with."""
    checkpoint = work / "checkpoints" / flow
    query = query_of(checkpoint)
    if query is None:
        return
    state = BatchState(kept_home(work, flow) / query, terms)
    commits = checkpoint / "commits"
    done = (
        max((int(one.name) for one in commits.iterdir() if one.name.isdigit()), default=-1) if commits.is_dir() else -1
    )
    state.before(done + 1)
    state.last()


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """As it comes back from a file."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(value)))
    return found


def _unfit(old: Any, new: Any, path: str) -> str | None:
    """The first column of another type. New ones are null in rows that were kept before, old ones are not read."""
    if not isinstance(old, dict) or not isinstance(new, dict) or old.get("type") != new.get("type"):
        return None if old == new else path
    if old["type"] == "struct":
        types = {one["name"]: one["type"] for one in new["fields"]}
        inner = [
            (one["type"], types[one["name"]], f"{path}.{one['name']}") for one in old["fields"] if one["name"] in types
        ]
    else:
        keys = [key for key in ("elementType", "keyType", "valueType") if key in old]
        inner = [(old[key], new.get(key), path) for key in keys]
    return next((found for one in inner if (found := _unfit(*one))), None)


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
