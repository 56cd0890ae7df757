"""DescribeLogDirs (35), versions 1-5. v2 flexible, v3 top-level error, v4 total and usable bytes, v5 cordoned."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.context import RequestContext
from tidelog.kernel.errors import DiskError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.replication.partition import Partition

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
_Partition = DescribeLogDirsResponse.DescribeLogDirsPartition


def handle(request: DescribeLogDirsRequest, ctx: RequestContext) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = []
    for home in ctx.services.partitions.homes:
        directory = home.directory
        try:
            total, usable = directory.space() if home.is_online else (-1, -1)
        except DiskError as error:
            home.failed(error)
        if not home.is_online:
            results.append(_Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path))
            continue
        found: dict[str, list[Partition]] = {}
        for partition in ctx.services.partitions:
            if partition.home is home and (wanted is None or (partition.topic, partition.index) in wanted):
                found.setdefault(partition.topic, []).append(partition)
        results.append(
            _Result(
                log_dir=directory.path,
                topics=[_topic(name, partitions) for name, partitions in sorted(found.items())],
                total_bytes=total,
                usable_bytes=usable,
            )
        )
    results += [
        _Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path) for path in ctx.services.offline_directories
    ]
    return DescribeLogDirsResponse(results=results)


def _topic(name: str, partitions: list[Partition]) -> _Topic:
    return _Topic(
        name=name,
        partitions=[
            _Partition(partition_index=partition.index, partition_size=partition.log.size_bytes)
            for partition in sorted(partitions, key=lambda partition: partition.index)
        ],
    )


API = Api(key=35, versions=range(1, 6), handle=handle)
