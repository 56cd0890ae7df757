"""The one place that looks into a member's metadata: which topics a group of the `consumer` protocol subscribes to.

Needed to keep the offsets of subscribed topics (KIP-211). Metadata that cannot be read is nobody's fault: the group is
then taken to be subscribed to everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.codec import decode_from
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_VERSION_BYTES: Final = 2


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members, None when one of them cannot be read."""
    topics: set[str] = set()
    try:
        for entry in metadata:
            if len(entry) < _VERSION_BYTES:
                return None
            # Version 0 is the head of every later version, those of the future included.
            subscription, _ = decode_from(ConsumerProtocolSubscription, 0, entry, _VERSION_BYTES)
            topics.update(subscription.topics)
    except ProtocolError:
        return None
    return frozenset(topics)
