"""Metadata of somebody else: of a release that is too new, or kept but not acted on. Who starts the node is told, and
has to agree where it is about safety."""

from __future__ import annotations

import logging

from tidelog.controller.brokers import SUPPORTED_FEATURES
from tidelog.kernel.errors import TidelogError
from tidelog.metadata.carried import ACL, count_by_kind
from tidelog.metadata.image import MetadataImage
from tidelog.node.config import NodeConfig

_log = logging.getLogger("tidelog.node")
_ALLOW = "tidelog.acls.unenforced.allow"
_VERSION = "metadata.version"


class UnenforcedAclsError(TidelogError):
    """Whoever wrote the ACLs relied on them."""


def check_version(image: MetadataImage) -> None:
    """A newer release may have written what reads as something else here."""
    _, known = SUPPORTED_FEATURES[_VERSION]
    level = image.features.get(_VERSION, 0)
    if level > known:
        raise TidelogError(
            f"the metadata has {_VERSION} {level}, and this release knows up to {known}: it belongs to a newer release"
        )


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
