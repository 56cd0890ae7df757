"""SASL's conversations: the RFC's own example, what a server must prove, and what a broker that wants a login does."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from typing import Any

import pytest

from tests.unit.client.fakes import PORT, FakeBroker
from tidelog.client.connection import Connection
from tidelog.client.errors import AuthenticationError
from tidelog.client.options import ClientOptions
from tidelog.client.sasl import Login, converse
from tidelog.client.security import Security
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.sim.loop import run, sim_loop
from tidelog.sim.net import SimNet

ALICE = Login("SCRAM-SHA-512", "alice=a,b", "päss")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()


def test_the_example_of_rfc_7677() -> None:
    talk = converse(Login("SCRAM-SHA-256", "user", "pencil"), lambda: NONCE)
    assert talk.begin() == f"n,,n=user,r={NONCE}".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert talk.reply(FIRST) == f"c=biws,r={SERVER_NONCE},p={proof}".encode()
    assert talk.reply(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_plain_is_one_message() -> None:
    talk = converse(Login("PLAIN", "alice", "s3cret"))
    assert talk.begin() == b"\0alice\0s3cret"
    assert talk.reply(b"") is None


def test_a_password_is_never_shown() -> None:
    assert "s3cret" not in repr(Login("PLAIN", "alice", "s3cret"))


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"e=unknown-user", "refused: unknown-user"),
        (FIRST.replace(NONCE.encode(), b"someone"), "nonce"),
        (f"r={NONCE},s=aaaa,i=4096".encode(), "nonce"),
        (FIRST.replace(b"4096", b"4095"), "'4095' rounds"),
        (FIRST.replace(b"4096", b"9999999999"), "rounds"),
        (FIRST.replace(b"4096", b"-1"), "rounds"),
        (FIRST.replace(b"W22Z", b"!!!!"), "base64"),
        (b"\xff", "UTF-8"),
        (b"", "nonce"),
    ],
)
def test_a_server_that_is_not_to_be_trusted_gets_no_proof(first: bytes, says: str) -> None:
    talk = converse(Login("SCRAM-SHA-256", "user", "pencil"), lambda: NONCE)
    talk.begin()
    with pytest.raises(AuthenticationError, match=says):
        talk.reply(first)


@pytest.mark.parametrize("last", [b"v=" + base64.b64encode(bytes(32)), b"", b"e=other-error"])
def test_a_server_must_know_the_password_too(last: bytes) -> None:
    talk = converse(Login("SCRAM-SHA-256", "user", "pencil"), lambda: NONCE)
    talk.begin()
    talk.reply(FIRST)
    with pytest.raises(AuthenticationError):
        talk.reply(last)


class ScramBroker:
    """The server's side of SCRAM-SHA-512, told apart from the client's code by being written from the RFC alone."""

    def __init__(self, broker: FakeBroker, login: Login, lifetime_ms: int = 0) -> None:
        self.login = login
        self.lifetime_ms = lifetime_ms
        self.first = ""
        self.said = ""
        broker.handlers[SaslHandshakeRequest] = self.shake
        broker.handlers[SaslAuthenticateRequest] = self.authenticate

    def shake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        known = request.mechanism == self.login.mechanism
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self.first = ""
        return SaslHandshakeResponse(error_code=code, mechanisms=[self.login.mechanism])

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        text = request.auth_bytes.decode()
        if not self.first:
            self.first = text.removeprefix("n,,")
            self.said = f"r={self.first.partition('r=')[2]}more,s={base64.b64encode(b'salt').decode()},i=4096"
            return SaslAuthenticateResponse(auth_bytes=self.said.encode())
        bare, _, proof = text.rpartition(",p=")
        salted = hashlib.pbkdf2_hmac("sha512", self.login.password.encode(), b"salt", 4096)
        key = hmac.digest(salted, b"Client Key", "sha512")
        whole = f"{self.first},{self.said},{bare}".encode()
        signature = hmac.digest(hashlib.sha512(key).digest(), whole, "sha512")
        if bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) != key:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(error_code=code, error_message="invalid credentials")
        server = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), whole, "sha512")
        proof = base64.b64encode(server).decode()
        return SaslAuthenticateResponse(auth_bytes=f"v={proof}".encode(), session_lifetime_ms=self.lifetime_ms)


def play(scene: Any, login: Login = ALICE, lifetime_ms: int = 0) -> None:
    async def main() -> None:
        broker = FakeBroker(SimNet(sim_loop()))
        broker.handlers[FindCoordinatorRequest] = lambda request, version: FindCoordinatorResponse(host=request.key)
        ScramBroker(broker, ALICE, lifetime_ms)
        await broker.start()
        options = ClientOptions(security=Security(login=login))
        await scene(broker, lambda: Connection.open(broker.net.host("client"), broker.name, PORT, options))

    run(main(), 1)


async def ask(connection: Connection) -> str:
    request = FindCoordinatorRequest(key="here")
    return (await connection.call(request, FindCoordinatorResponse, version=2)).host


def test_a_connection_is_ready_when_both_sides_have_proved_the_password() -> None:
    async def scene(broker: FakeBroker, connect: Any) -> None:
        connection = await connect()
        assert await ask(connection) == "here"
        kinds = [type(request).__name__ for request, _ in broker.seen]
        assert kinds[1:4] == ["SaslHandshakeRequest", "SaslAuthenticateRequest", "SaslAuthenticateRequest"]
        assert broker.requests(SaslAuthenticateRequest)[0].auth_bytes.startswith(b"n,,n=alice=3Da=2Cb,r=")
        connection.close()

    play(scene)


@pytest.mark.parametrize(
    ("login", "says"),
    [
        (Login("SCRAM-SHA-512", "alice=a,b", "wrong"), "alice=a,b at b1:9092 by SCRAM-SHA-512: invalid credentials"),
        (Login("PLAIN", "alice", "x"), "does not offer it, but SCRAM-SHA-512"),
    ],
)
def test_a_refused_login_is_told_and_the_connection_closed(login: Login, says: str) -> None:
    async def scene(broker: FakeBroker, connect: Any) -> None:
        with pytest.raises(AuthenticationError, match=says) as caught:
            await connect()
        assert not caught.value.is_retriable
        await asyncio.sleep(1)  # simulated: the end of a connection travels too
        assert broker.connections[0].is_lost

    play(scene, login)


def test_a_broker_without_sasl_is_named() -> None:
    async def scene(broker: FakeBroker, connect: Any) -> None:
        del broker.ranges[SaslHandshakeRequest.API_KEY]
        with pytest.raises(AuthenticationError, match="takes no login: is it a listener without SASL"):
            await connect()

    play(scene)


def test_a_connection_whose_login_ends_soon_is_replaced_and_keeps_its_answers() -> None:
    async def scene(broker: FakeBroker, connect: Any) -> None:
        connection = await connect()
        assert connection.is_open
        await asyncio.sleep(8)
        assert connection.is_open
        answered = asyncio.Event()

        async def late(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
            await answered.wait()
            return FindCoordinatorResponse(host="late")

        broker.handlers[FindCoordinatorRequest] = late
        waiting = asyncio.get_running_loop().create_task(ask(connection))
        await asyncio.sleep(1)
        assert not connection.is_open
        answered.set()
        assert await waiting == "late"
        await connection.wait_closed()

    play(scene, lifetime_ms=10_000)
