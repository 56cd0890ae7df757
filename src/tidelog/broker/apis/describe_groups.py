"""DescribeGroups (15), versions 0-6. v3 authorized operations, v4 static members, v5 flexible, v6
GROUP_ID_NOT_FOUND."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import Parked, RequestContext
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

GROUP_OPERATIONS = 3400


def handle(request: DescribeGroupsRequest, ctx: RequestContext) -> Parked:
    parked = ctx.park()

    def answer(response: DescribeGroupsResponse) -> None:
        if request.include_authorized_operations:
            for group in response.groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        parked.answer(response)

    ctx.services.groups.describe_groups(request, ctx.version, answer)
    return parked


API = Api(key=15, versions=range(0, 7), handle=handle)
