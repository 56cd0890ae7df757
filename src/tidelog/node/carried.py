"""Metadata that is kept but not acted on: who starts the node is told, and has to agree where it is about safety."""

from __future__ import annotations

import logging

from tidelog.kernel.errors import TidelogError
from tidelog.metadata.carried import ACL, count_by_kind
from tidelog.metadata.image import MetadataImage
from tidelog.node.config import NodeConfig

_log = logging.getLogger("tidelog.node")
_ALLOW = "tidelog.acls.unenforced.allow"


class UnenforcedAclsError(TidelogError):
    """Whoever wrote the ACLs relied on them."""


def check_carried(image: MetadataImage, config: NodeConfig) -> None:
    counts = count_by_kind(image.carried)
    if counts.get(ACL) and not config.get_bool(_ALLOW):
        raise UnenforcedAclsError(
            f"the metadata holds {_told(counts[ACL], ACL)}, and this release does not enforce any: everybody could "
            f"read and write everything; to serve it all the same, set {_ALLOW}=true"
        )
    if counts:
        kept = ", ".join(_told(count, kind) for kind, count in counts.items())
        _log.warning("the metadata holds %s: kept for Apache Kafka, but nothing here acts on them yet", kept)


def _told(count: int, kind: str) -> str:
    return f"{count} {kind}{'' if count == 1 else 's'}"
