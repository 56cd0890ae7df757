"""One connection to one broker: frames, correlation, version negotiation, deadlines. Knows no topic and no cluster.

Requests are pipelined: answers come back in the order of the requests, as Kafka promises. A request that is not
answered in time ends the connection, because everything behind it waits too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from struct import Struct as Packing
from typing import Any, Final, NamedTuple, TypeVar, cast

from msgspec import Struct

from tidelog.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    UnreachableError,
    UnsupportedApiError,
    check,
    error_code,
)
from tidelog.client.options import SOFTWARE_NAME, SOFTWARE_VERSION, ClientOptions
from tidelog.client.sasl import Login, converse
from tidelog.kernel.errors import ProtocolError
from tidelog.kernel.ports import Net
from tidelog.protocol.codec import decode
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.frame import encode_request, read_response_head
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

ResponseT = TypeVar("ResponseT", bound=Struct)
Request = Struct | Callable[[int], Struct]
"""A request, or what makes it once its version is known."""

_SIZE: Final = Packing(">i")
_ERROR: Final = Packing(">h")
_SCRATCH_BYTES: Final = 64 * 1024
_LOGIN_USED: Final = 0.85
"""Of the life of a login (KIP-368): requests sent after it would end the connection."""
_NO_SASL: Final = "a listener without SASL (security.protocol PLAINTEXT or SSL)"


class VersionRange(NamedTuple):
    low: int
    high: int


class _Waiting(NamedTuple):
    correlation_id: int
    answer: asyncio.Future[bytes | bytearray]


class Connection(asyncio.BufferedProtocol):
    """Made by `open`, which returns it ready for calls."""

    def __init__(self, address: str, options: ClientOptions) -> None:
        self.address = address
        self.versions: Mapping[int, VersionRange] = {}
        self._options = options
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._in_flight = asyncio.Semaphore(options.in_flight_max)
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._lost: ClientError | None = None
        self._renewed_s = float("inf")
        """When another connection takes its place."""
        self._is_retired = False
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._have = 0
        self._frame: bytearray | None = None
        self._filled = 0

    @classmethod
    async def open(cls, net: Net, host: str, port: int, options: ClientOptions) -> Connection:
        """Connect and learn the broker's versions; UnreachableError when nobody is there."""
        address = f"{host}:{port}"
        connection = cls(address, options)
        try:
            async with asyncio.timeout(options.connect_timeout_s):
                await net.connect(host, port, lambda: connection, options.security.tls)
        except TimeoutError:
            reason = f"no answer within {options.connect_timeout_s:g} s"
            raise UnreachableError({address: reason}) from None
        except OSError as error:
            raise UnreachableError({address: _reason(error)}) from error
        try:
            connection.versions = await connection._negotiate()
            if options.security.login is not None:
                await connection._authenticate(options.security.login)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """And fit for more requests: one whose login will soon be over is closed when it has its answers."""
        if self._loop.time() < self._renewed_s or self._lost is not None:
            return self._lost is None
        self._is_retired = True
        if not self._waiting:
            self.close()
        return False

    def version_of(self, shape: type[Struct], highest: int | None = None) -> int:
        """The newest version of a request that both sides speak, `highest` at most."""
        api = cast(Any, shape)
        theirs = self.versions.get(api.API_KEY)
        name = shape.__name__.removesuffix("Request")
        if theirs is None:
            raise UnsupportedApiError(f"the broker at {self.address} does not offer {name}")
        high: int = min(theirs.high, api.MAX_VERSION if highest is None else min(highest, api.MAX_VERSION))
        if high < max(theirs.low, api.MIN_VERSION):
            raise UnsupportedApiError(
                f"the broker at {self.address} speaks versions {theirs.low} to {theirs.high} of {name}, "
                f"this client {api.MIN_VERSION} to {api.MAX_VERSION if highest is None else highest}"
            )
        return high

    async def call(
        self,
        request: Request,
        response: type[ResponseT],
        *,
        version: int,
        timeout_s: float | None = None,
    ) -> ResponseT:
        message = request if isinstance(request, Struct) else request(version)
        frame = await self._exchange(message, version, timeout_s or self._options.request_timeout_s)
        api = cast(Any, response)
        try:
            view = memoryview(frame)
            _, position = read_response_head(api.API_KEY, version, view)
            return decode(response, version, view, position)
        except ProtocolError as error:
            self._fail(ConnectionLostError(f"the broker at {self.address} sent an answer that cannot be read: {error}"))
            raise

    async def send(self, message: Struct, version: int) -> None:
        """A request that has no answer: Produce with acks=0."""
        await self._may_write.wait()
        self._write(message, version)

    def close(self) -> None:
        """Requests under way fail with ConnectionLostError."""
        self._fail(ConnectionLostError(f"the connection to {self.address} was closed"))

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    # Requests

    async def _exchange(self, message: Struct, version: int, timeout_s: float) -> bytes | bytearray:
        name = type(message).__name__.removesuffix("Request")
        try:
            async with asyncio.timeout(timeout_s), self._in_flight:
                await self._may_write.wait()
                answer: asyncio.Future[bytes | bytearray] = asyncio.get_running_loop().create_future()
                self._waiting.append(_Waiting(self._write(message, version), answer))
                return await answer
        except TimeoutError:
            error = RequestTimeoutError(f"the broker at {self.address} did not answer {name} within {timeout_s:g} s")
            self._fail(error)
            raise error from None

    def _write(self, message: Struct, version: int) -> int:
        if self._lost is not None:
            raise ConnectionLostError(str(self._lost))
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._transport.write(encode_request(message, version, self._correlation_id, self._options.client_id))
        return self._correlation_id

    async def _negotiate(self) -> dict[int, VersionRange]:
        """ApiVersions by KIP-511: a broker that does not know our version answers in version 0, and says its own."""
        version = ApiVersionsRequest.MAX_VERSION
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        frame = await self._exchange(request, version, self._options.request_timeout_s)
        answer = self._read_versions(frame, version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = [api.max_version for api in answer.api_keys if api.api_key == ApiVersionsRequest.API_KEY]
            version = min(offered[0], version) if offered else 0
            frame = await self._exchange(_for_version(request, version), version, self._options.request_timeout_s)
            answer = self._read_versions(frame, version)
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, f"ApiVersions of {self.address}")
        return {api.api_key: VersionRange(api.min_version, api.max_version) for api in answer.api_keys}

    async def _authenticate(self, login: Login) -> None:
        """SaslHandshake, then the mechanism's own messages in SaslAuthenticate (KIP-152)."""
        try:
            await self._log_in(login)
        except AuthenticationError as error:
            raise AuthenticationError(f"{login.username} at {self.address} by {login.mechanism}: {error}") from None
        except UnsupportedApiError:
            raise AuthenticationError(f"the broker at {self.address} takes no login: is it {_NO_SASL}?") from None

    async def _log_in(self, login: Login) -> None:
        version = self.version_of(SaslHandshakeRequest)
        shaken = await self.call(
            SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse, version=version
        )
        if shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise AuthenticationError(f"the broker does not offer it, but {', '.join(shaken.mechanisms) or 'none'}")
        if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(f"the broker takes no login here: is it {_NO_SASL}?")
        check(shaken.error_code, f"SaslHandshake of {self.address}")
        conversation, version = converse(login), self.version_of(SaslAuthenticateRequest)
        said: bytes | None = conversation.begin()
        while said is not None:
            request = SaslAuthenticateRequest(auth_bytes=said)
            answer = await self.call(request, SaslAuthenticateResponse, version=version)
            if answer.error_code != ErrorCode.NONE:
                raise AuthenticationError(answer.error_message or error_code(answer.error_code).name)
            if answer.session_lifetime_ms > 0:
                lifetime_s = answer.session_lifetime_ms / 1000 * _LOGIN_USED
                self._renewed_s = self._loop.time() + lifetime_s
            said = conversation.reply(answer.auth_bytes)

    def _read_versions(self, frame: bytes | bytearray, version: int) -> ApiVersionsResponse:
        try:
            if len(frame) >= 6 and _ERROR.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
                return decode(ApiVersionsResponse, 0, memoryview(frame), 4)
            return decode(ApiVersionsResponse, version, memoryview(frame), 4)
        except ProtocolError as error:
            raise UnreachableError({self.address: f"it does not speak Kafka's protocol: {error}"}) from error

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return memoryview(self._scratch)[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._lost is not None:
            return
        if self._frame is None:
            self._have += nbytes
            self._parse()
            return
        self._filled += nbytes
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._accept(frame)

    def eof_received(self) -> None:
        pass

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {_reason(exc)}" if isinstance(exc, OSError) else ""
        self._fail(ConnectionLostError(f"the broker at {self.address} closed the connection{reason}"))
        if not self._closed.done():
            self._closed.set_result(None)

    # Frames

    def _parse(self) -> None:
        """Take whole frames out of the scratch buffer; one that is larger than it gets a buffer of its own."""
        position = 0
        while self._have - position >= _SIZE.size and self._lost is None:
            (size,) = _SIZE.unpack_from(self._scratch, position)
            if not 4 <= size <= self._options.response_bytes_max:
                reason = f"announced an answer of {size} bytes, the limit is {self._options.response_bytes_max}"
                self._fail(ConnectionLostError(f"the broker at {self.address} {reason}"))
                return
            start, end = position + _SIZE.size, position + _SIZE.size + size
            if end <= self._have:
                self._accept(bytes(memoryview(self._scratch)[start:end]))
                position = end
            elif _SIZE.size + size > len(self._scratch):
                self._frame = bytearray(size)
                self._filled = self._have - start
                self._frame[: self._filled] = self._scratch[start : self._have]
                position = self._have
            else:
                break
        rest = self._have - position
        if position and rest:
            self._scratch[:rest] = self._scratch[position : self._have]
        self._have = rest

    def _accept(self, frame: bytes | bytearray) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            reason = f"answered request {correlation_id}, which is not the next one"
            self._fail(ConnectionLostError(f"the broker at {self.address} {reason}"))
            return
        answer = self._waiting.popleft().answer
        if not answer.done():  # else whoever asked has given up
            answer.set_result(frame)
        if self._is_retired and not self._waiting:
            self.close()

    def _fail(self, error: ClientError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        for waiting in self._waiting:
            if not waiting.answer.done():
                waiting.answer.set_exception(error)
                waiting.answer.exception()  # a caller that was cancelled does not look
        self._waiting.clear()
        self._may_write.set()
        if self._transport is None:
            self._closed.set_result(None)
        else:
            self._transport.close()


def _for_version(request: ApiVersionsRequest, version: int) -> ApiVersionsRequest:
    # Before version 3 the request is empty.
    return request if version >= 3 else ApiVersionsRequest()


def _reason(error: OSError | None) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, ConnectionResetError):
        return "it was reset"
    return str(error) if error is None or error.strerror is None else error.strerror
