"""ConsumerGroupDescribe (69), versions 0-1. v1 the kind of each member."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.apis.describe_groups import GROUP_OPERATIONS
from tidelog.broker.context import Parked, RequestContext
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)


def handle(request: ConsumerGroupDescribeRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()

    def answer(response: ConsumerGroupDescribeResponse) -> None:
        if request.include_authorized_operations:
            for group in response.groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        parked.answer(response)

    ctx.services.groups.describe_consumer_groups(request, answer)
    return parked


API = Api(key=69, versions=range(0, 2), handle=handle)
