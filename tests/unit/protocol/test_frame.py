"""Headers of requests and responses: which API and version carries which header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.errors import ProtocolError
from tidelog.protocol.apis import APIS, ApiKey
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.frame import (
    RequestHead,
    encode_request,
    encode_response,
    encode_response_parts,
    read_request_head,
    read_response_head,
)
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.headers import RequestHeader, ResponseHeader
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def request_frame(version: int, client_id: str | None) -> bytes:
    frame = encode_request(HeartbeatRequest(group_id="g", member_id="m"), version, 7, client_id)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


@pytest.mark.parametrize("client_id", [None, "", "me", "é" * 200])
@pytest.mark.parametrize("version", range(5))
def test_a_request_is_read_as_it_was_written(version: int, client_id: str | None) -> None:
    frame = request_frame(version, client_id)
    head = read_request_head(memoryview(frame))
    assert head == (12, version, 7, client_id, head.body_position)
    request = decode(HeartbeatRequest, version, frame, head.body_position)
    assert request == HeartbeatRequest(group_id="g", member_id="m")


@pytest.mark.parametrize(("version", "header_version"), [(3, 1), (4, 2)])
def test_the_header_is_the_one_of_the_schema(version: int, header_version: int) -> None:
    header = RequestHeader(request_api_key=12, request_api_version=version, correlation_id=7, client_id="me")
    assert request_frame(version, "me").startswith(encode(header, header_version))


def test_tags_of_a_header_are_skipped() -> None:
    frame = b"\0\x0c\0\x04\0\0\0\x07\0\x02me" + b"\x02\x05\x01x\x83\x01\x00" + b"body"
    assert read_request_head(frame) == RequestHead(12, 4, 7, "me", len(frame) - 4)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_a_protocol_error(data: bytes) -> None:
    try:
        head = read_request_head(data)
    except ProtocolError:
        return
    assert head.body_position <= len(data)


@given(st.sampled_from(sorted(APIS)), st.integers(0, 15), st.binary(max_size=20))
def test_a_header_of_a_known_api_is_read_or_refused(key: int, version: int, rest: bytes) -> None:
    data = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + rest
    try:
        head = read_request_head(data)
    except ProtocolError:
        return
    assert head.body_position <= len(data)


@pytest.mark.parametrize("version", range(5))
def test_a_request_cut_within_its_header_is_refused(version: int) -> None:
    frame = request_frame(version, "me")
    for cut in range(read_request_head(frame).body_position):
        with pytest.raises(ProtocolError):
            read_request_head(frame[:cut])


def test_an_unknown_api_is_refused() -> None:
    with pytest.raises(ProtocolError, match="unknown API key 999"):
        read_request_head(b"\x03\xe7" + bytes(20))


def test_a_client_id_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        read_request_head(b"\0\x0c\0\0\0\0\0\x07\0\x01\xff")


@pytest.mark.parametrize("version", range(5))
def test_a_response_is_read_as_it_was_written(version: int) -> None:
    frame = encode_response(HeartbeatResponse(error_code=27), version, -5)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = read_response_head(ApiKey.HEARTBEAT, version, frame[4:])
    assert correlation_id == -5
    assert decode(HeartbeatResponse, version, frame[4:], position) == HeartbeatResponse(error_code=27)
    header = encode(ResponseHeader(correlation_id=-5), 1 if version >= 4 else 0)
    assert frame[4 : 4 + position] == header


def test_the_answer_to_api_versions_never_has_header_tags() -> None:
    frame = encode_response(ApiVersionsResponse(), 4, 1)
    assert frame[4:8] == b"\0\0\0\x01"
    assert read_response_head(ApiKey.API_VERSIONS, 4, frame[4:]) == (1, 4)
    assert decode(ApiVersionsResponse, 4, frame, 8) == ApiVersionsResponse()


def test_the_request_of_api_versions_has_them() -> None:
    frame = encode_request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, 1, "c")
    assert read_request_head(frame[4:]).body_position == 12


def test_a_version_that_is_too_new_still_has_a_readable_header() -> None:
    # A client may ask ApiVersions in a version that we do not have yet; it is told which we have.
    assert read_request_head(b"\0\x12\0\x63\0\0\0\x01\0\x01c\0") == RequestHead(18, 99, 1, "c", 12)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x01\x01"])
def test_a_response_cut_within_its_header_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_response_head(ApiKey.HEARTBEAT, 4, frame)


def test_large_records_of_a_response_are_not_copied() -> None:
    records = memoryview(b"batch" * 1000)
    partition = FetchResponse.PartitionData(records=records)
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])
    parts = encode_response_parts(response, 12, 1)
    assert any(part is records for part in parts)
    assert b"".join(parts) == encode_response(response, 12, 1)


def test_small_pieces_are_joined() -> None:
    """A transport pays for each piece, and uvloop fails with a million of them (ten thousand topics with configs)."""
    small, large = b"small" * 10, memoryview(b"large" * 1000)
    partitions = [
        FetchResponse.PartitionData(partition_index=index, records=large if index == 500 else small)
        for index in range(1000)
    ]
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=partitions)])
    parts = encode_response_parts(response, 12, 1)
    assert len(parts) == 3 and parts[1] is large
    assert b"".join(parts) == encode_response(response, 12, 1)
    (whole,) = encode_response_parts(ApiVersionsResponse(), 4, 1)
    assert whole == encode_response(ApiVersionsResponse(), 4, 1)
