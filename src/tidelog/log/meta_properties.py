"""meta.properties: which node and cluster a data directory belongs to. Java's properties format, as Kafka writes it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tidelog.log.errors import DirectoryMismatchError
from tidelog.protocol.uuids import uuid_from_text, uuid_to_text

META_PROPERTIES: Final = "meta.properties"
_VERSION: Final = "1"
_LINE: Final = re.compile(r"\s*((?:\\.|[^=:\s\\])+)\s*(?:[=:]\s*|\s)(.*)")


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: bytes

    def encode(self) -> bytes:
        entries = {
            "cluster.id": self.cluster_id,
            "directory.id": uuid_to_text(self.directory_id),
            "node.id": str(self.node_id),
            "version": _VERSION,
        }
        return "".join(f"{key}={value}\n" for key, value in entries.items()).encode()

    def check(self, path: str, *, cluster_id: str | None, node_id: int) -> None:
        """Refuse the directory of somebody else: its offsets and identities mean something different there."""
        if self.node_id != node_id:
            raise DirectoryMismatchError(
                f"the data directory {path} belongs to node {self.node_id}, but node.id is {node_id}: "
                f"set node.id={self.node_id} or choose another directory"
            )
        if cluster_id is not None and self.cluster_id != cluster_id:
            raise DirectoryMismatchError(
                f"the data directory {path} belongs to cluster {self.cluster_id}, not to {cluster_id}: "
                "choose another directory"
            )


def decode_meta(data: bytes, path: str) -> MetaProperties:
    values = _properties(data.decode("latin-1"))
    version = values.get("version")
    if version != _VERSION:
        raise DirectoryMismatchError(f"{path} has version {version or 'none'}: only {_VERSION} can be read")
    try:
        node_id = int(values["node.id"])
        cluster_id = values["cluster.id"]
        directory_id = uuid_from_text(values["directory.id"])
    except KeyError as missing:
        raise DirectoryMismatchError(f"{path} does not tell {missing.args[0]}: format the directory again") from None
    except ValueError as error:
        raise DirectoryMismatchError(f"{path} cannot be read: {error}") from None
    return MetaProperties(cluster_id, node_id, directory_id)


def _properties(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in text.splitlines():
        if line.lstrip().startswith(("#", "!")):
            continue
        match = _LINE.fullmatch(line)
        if match:
            values[re.sub(r"\\(.)", r"\1", match[1])] = re.sub(r"\\(.)", r"\1", match[2]).strip()
    return values
