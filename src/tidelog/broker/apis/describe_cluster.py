"""DescribeCluster (60), versions 0-2. v1 endpoint type (KIP-919), v2 fenced brokers (KIP-1073)."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.apis.metadata import CLUSTER_OPERATIONS
from tidelog.broker.brokers import broker_addresses
from tidelog.broker.context import RequestContext
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

_BROKERS = 1


def handle(request: DescribeClusterRequest, ctx: RequestContext) -> DescribeClusterResponse:
    services = ctx.services
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == 2
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This listener describes brokers (endpoint type 1).",
            endpoint_type=request.endpoint_type,
        )
    brokers = services.image.live_brokers()
    if request.include_fenced_brokers:
        brokers = [broker for _, broker in sorted(services.image.brokers.items())]
    fenced = {broker.broker_id for broker in brokers if broker.fenced}
    response = DescribeClusterResponse(
        error_message=None,
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker_id, host=host, port=port, rack=rack, is_fenced=broker_id in fenced
            )
            for broker_id, host, port, rack in broker_addresses(ctx, brokers)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


API = Api(key=60, versions=range(0, 3), handle=handle)
