"""Metadata (3), versions 0-13. v1 null means all topics, v4 auto creation, v7 leader epochs, v8 authorized operations,
v9 flexible, v10 topic ids, v12 topics by id, v13 top-level error."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.auto_create import auto_create
from tidelog.broker.brokers import broker_addresses
from tidelog.broker.context import Encoded, RequestContext
from tidelog.metadata.image import NO_LEADER, TopicImage
from tidelog.protocol.codec import encode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.topic_names import INTERNAL_TOPICS, complaint_about_name
from tidelog.protocol.uuids import ZERO_UUID

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = MetadataResponse.MetadataResponsePartition

# Bit n is the AclOperation with code n; everything is allowed until there are ACLs.
CLUSTER_OPERATIONS = 8096
TOPIC_OPERATIONS = 3576


def handle(request: MetadataRequest, ctx: RequestContext) -> MetadataResponse | Encoded:
    if not _wants_everything(request, ctx.version):
        return _respond(request, ctx)
    address = ctx.connection.listener.address_for(ctx.connection)
    flags = (request.include_cluster_authorized_operations, request.include_topic_authorized_operations)
    key = (ctx.version, ctx.connection.listener.name, address, flags)
    cache = ctx.services.metadata_cache
    return Encoded(cache.get(ctx.services.image, key, lambda: encode(_respond(request, ctx), ctx.version)))


def _wants_everything(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _respond(request: MetadataRequest, ctx: RequestContext) -> MetadataResponse:
    services = ctx.services
    response = MetadataResponse(
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, host, port, rack in broker_addresses(ctx)
        ],
        topics=_topics(request, ctx),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return response


def _topics(request: MetadataRequest, ctx: RequestContext) -> list[_Topic]:
    image = ctx.services.image
    if request.topics is None or _wants_everything(request, ctx.version):
        return [_describe(topic, ctx.services.node_id) for _, topic in sorted(image.topics.items())]
    found: list[_Topic] = []
    to_create: list[str] = []
    for wanted in {(topic.name, topic.topic_id): topic for topic in request.topics}.values():
        if wanted.topic_id != ZERO_UUID:
            by_id = image.topic_by_id(wanted.topic_id)
            if by_id is None:
                # Before version 12 an answer cannot leave the name out, though a request can.
                name = None if ctx.version >= 12 else wanted.name or ""
                found.append(_Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=wanted.topic_id))
            else:
                found.append(_describe(by_id, ctx.services.node_id))
            continue
        text = wanted.name or ""
        topic = image.topics.get(text)
        if topic is not None:
            found.append(_describe(topic, ctx.services.node_id))
        elif complaint_about_name(text):
            found.append(_Topic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=text, is_internal=False))
        else:
            found.append(
                _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=text, is_internal=text in INTERNAL_TOPICS)
            )
            to_create.append(text)
    if to_create and (request.allow_auto_topic_creation or ctx.version < 4):
        auto_create(ctx.services, to_create)
    return found


def _describe(topic: TopicImage, node_id: int) -> _Topic:
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _Partition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE,
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
            )
            for index, state in sorted(topic.partitions.items())
        ],
    )


API = Api(key=3, versions=range(0, 14), handle=handle)
