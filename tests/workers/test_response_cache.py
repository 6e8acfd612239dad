"""What a worker process keeps of the engine's answers, and for how long."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trio

from hatchway.api.http.gateway import Gateway
from hatchway.api.http.request import NOSNIFF, Request, Response
from hatchway.api.http.table import ENDPOINTS
from hatchway.api.workers import backend
from hatchway.api.workers.backend import WorkerBackend
from hatchway.api.workers.engine_client import EngineClient
from hatchway.api.workers.messages import CheckHead, Configure, Responded
from hatchway.api.workers.worker import make_app
from hatchway.engine.access import signers
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import SignatureRefused
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PublicKey
from hatchway.engine.sessions import versions
from hatchway.engine.sessions.versions import VersionCounters
from hatchway.engine.settings.settings import Settings
from hatchway.engine.settings.sources import encode_settings
from tests.support.fakes import SetClock, key, signed

ANSWER = Response(200, b'{"valid":true}')


@dataclass
class Asked:
    """A worker whose engine is the test: what it asked, and what it is told."""

    counters: VersionCounters
    home: Path
    asked: list[Any] = field(default_factory=list)
    orders: list[Any] = field(default_factory=list)
    clock: SetClock = field(default_factory=SetClock)

    def __post_init__(self) -> None:
        self.keys = AuthorizedKeys(self.home / "authorized_keys")
        self.keys.register(key().public, ("SHELL",), "one")
        own = key("own").public.openssh()
        bound = (("127.0.0.1", 7420),)
        first = Configure(bytes(self.home), encode_settings(Settings()), bound, own, b"k" * 32)
        self.client = EngineClient(self.counters, self.keys, self.asked.append, self.orders.append, first)
        self.client.clock = cast(Any, self.clock)
        self.gateway = make_app(WorkerBackend(self.client), self.home).gateway
        self.gateway.use_bound(bound)

    async def inspect(self, token: str, until: float = 2000.0) -> bool:
        """Inspect; whether the engine was asked."""
        before = len(self.asked)
        headers = ((b"host", b"127.0.0.1:7420"), (b"authorization", f"Bearer {token}".encode()))
        reply = ask(self.gateway, "/api/auth/inspect/", headers)
        if isinstance(reply, Awaitable):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell, before, token, until)
                reply = await reply
        assert reply == ANSWER
        return len(self.asked) > before

    @property
    def kept(self) -> dict[Any, Any]:
        """What the cache holds."""
        return cast(WorkerBackend, self.gateway.backend)._cache._responses

    async def is_asked(self, waiting: Any) -> bool:
        """Whether what waits for a response has asked the engine, which says nothing."""
        before = len(self.asked)
        assert isinstance(waiting, Awaitable)
        with trio.move_on_after(0):
            await waiting
        return len(self.asked) > before

    async def _tell(self, before: int, token: str, until: float) -> None:
        while len(self.asked) == before:
            await trio.sleep(0)
        self.client.hear(Responded(self.asked[-1].number, ANSWER, self.counters.snapshot(token), until))


def ask(gateway: Gateway, path: str, headers: tuple[tuple[bytes, bytes], ...]) -> Any:
    """One request at the fast path."""
    return gateway.handle(Request("GET", path, b"", headers, b"", ("127.0.0.1", 5), ("127.0.0.1", 7420)))


@pytest.fixture
def worker(home: Path) -> Iterator[Asked]:
    fd = versions.create()
    counters = VersionCounters(fd, write=True)
    counters.extend_validity()
    home.mkdir(mode=0o700)
    yield Asked(counters, home)
    os.close(fd)


async def test_an_answer_is_given_again_while_nothing_happens(worker: Asked) -> None:
    """The second inspection asks nobody; one after the session's end in time, by the wall clock, asks again."""
    assert await worker.inspect("a", until=1100.0)
    assert not await worker.inspect("a")
    worker.clock.now = 1099.9
    assert not await worker.inspect("a")
    worker.clock.now = 1100.0
    assert await worker.inspect("a", until=1100.0)
    assert await worker.inspect("a", until=1100.0), "an answer that is over is not kept"


async def test_a_step_a_reload_and_a_key_end_what_is_kept(worker: Asked) -> None:
    """After each of them the engine is asked once more; a step of another session changes nothing."""
    for happens in (
        lambda: worker.counters.invalidate("a"),
        worker.counters.invalidate_all,
        lambda: worker.keys.register(key().public, ("SHELL", "AGENT"), "one"),
        lambda: worker.keys.unregister("one"),
    ):
        await worker.inspect("a")
        assert not await worker.inspect("a")
        worker.counters.invalidate("b")
        assert not await worker.inspect("a")
        happens()
        assert await worker.inspect("a")


async def test_keys_that_are_refused_have_nothing_kept(worker: Asked) -> None:
    """While authorized_keys is open to others, every inspection is the engine's to judge."""
    await worker.inspect("a")
    (worker.home / "authorized_keys").chmod(0o644)
    assert [await worker.inspect("a") for _ in range(3)] == [True] * 3


async def test_keys_that_an_editor_writes_are_waited_for_without_a_pause(
    worker: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is given again before the file stands still, and no other request of the worker is held up for that."""
    monkeypatch.setattr(SystemClock, "pause", None)
    await worker.inspect("a")
    content = worker.keys.path.read_bytes()
    worker.keys.path.write_bytes(content.replace(b"SHELL", b"AGENT"))
    assert not worker.keys.settled()
    assert await worker.inspect("a")
    assert not await worker.inspect("a")


async def test_little_is_kept(worker: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of tokens pushes the oldest out, and no more is held."""
    monkeypatch.setattr(backend, "CACHED", 100)
    for number in range(110):
        await worker.inspect(f"{number}")
    assert len(worker.kept) == 100
    assert await worker.inspect("0")
    assert not await worker.inspect("109")


async def test_what_a_worker_does_not_see_through_is_left_alone(worker: Asked) -> None:
    """Other paths are the app's; two tokens and none are the engine's; a foreign host is refused here."""
    host = (b"host", b"127.0.0.1:7420")
    assert ask(worker.gateway, "/api/auth/inspect/", ((b"host", b"evil.example"),)).status == 421
    assert ask(worker.gateway, "/api/auth/sessions/", (host,)) is None
    for tokens in ((), ((b"authorization", b"Bearer a"),) * 2):
        assert await worker.is_asked(ask(worker.gateway, "/api/auth/inspect/", (host, *tokens)))


@pytest.mark.parametrize("refusal", [Response(401, b"{}"), None])
async def test_the_engine_judges_a_head_before_its_body_is_read(worker: Asked, refusal: Response | None) -> None:
    """Its refusal is the answer; where it has none the body may come."""
    headers = ((b"host", b"127.0.0.1:7420"), (b"authorization", b"Bearer a"))
    path = "/api/platform/singularity/instance/"
    head, told = Request("POST", path, b"", headers, b"", ("127.0.0.1", 5), ("127.0.0.1", 7420)), list[Any]()
    route = worker.gateway.find("POST", path)
    assert route is not None

    async def check() -> None:
        told.append(await worker.gateway.admit(head, route, 2, has_body=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(check)
        await trio.testing.wait_all_tasks_blocked()
        (asked,) = worker.asked
        assert (type(asked), asked.request) == (CheckHead, head)
        worker.client.hear(Responded(asked.number, refusal))
    assert told == [refusal]


async def test_without_the_plain_parser_answers_are_kept_too(worker: Asked) -> None:
    """The setting `lane` decides who reads a request, and not whether a worker may give a response again."""
    await worker.inspect("a")
    own = key("own").public.openssh()
    worker.client.configure(Configure(bytes(worker.home), encode_settings(Settings(lane=False)), (), own, b""))
    headers = ((b"host", b"127.0.0.1:7420"), (b"authorization", b"Bearer a"))
    request = Request("GET", "/api/auth/inspect/", b"", headers, b"", ("127.0.0.1", 5), ("127.0.0.1", 7420))
    assert worker.gateway.handle(request) is None
    route = worker.gateway.find("GET", "/api/auth/inspect/")
    assert route is not None
    assert worker.gateway.respond(route, request) == ANSWER


def test_what_the_plain_parser_may_answer_holds_nothing() -> None:
    """An endpoint of the table is plain or held, or neither: the parser can send no stream and waits for nobody."""
    assert not [row.path for row in ENDPOINTS if row.plain and (row.held or "{" in row.path)]


async def test_challenges_of_a_shared_store_are_the_engines(worker: Asked) -> None:
    """Without a key for them a worker asks; with it, the challenge is one that the key's holder knows."""
    host = ((b"host", b"127.0.0.1:7420"),)
    made = msgspec.json.decode(ask(worker.gateway, "/api/auth/challenge/", host).body)
    assert worker.client.challenges is not None
    assert worker.client.challenges.read(made["nonce"]).identity == "any"
    own = key("own").public.openssh()
    worker.client.configure(Configure(bytes(worker.home), encode_settings(Settings()), (), own, b""))
    assert await worker.is_asked(ask(worker.gateway, "/api/auth/challenge/", host))


def verify(worker: Asked, address: str) -> Any:
    """A wrong signature at the fast path, sent from that address."""
    assert worker.client.challenges is not None
    body = msgspec.json.encode(signed(worker.client.challenges.issue("127.0.0.1:7420"), key("two")))
    headers = ((b"host", b"127.0.0.1:7420"), (b"content-type", b"application/json"))
    path = "/api/auth/verify/"
    return worker.gateway.handle(Request("POST", path, b"", headers, body, (address, 5), ("127.0.0.1", 7420)))


async def test_a_worker_checks_nothing_for_an_address_past_its_limit(
    worker: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the engine has said 429 it is asked at once, until the wait is over; other addresses are as ever."""
    checked: list[PublicKey] = []

    def noted(public: PublicKey, algorithm: str, message: bytes, signature: bytes) -> None:
        checked.append(public)
        raise SignatureRefused("wrong_signature")

    monkeypatch.setattr(signers, "verify", noted)
    refused = Response(429, b"{}", ((b"retry-after", b"7"), NOSNIFF))

    async def ask(address: str, answer: Response) -> int:
        """Checks made for one verify."""
        before = len(checked)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell, answer)
            assert await verify(worker, address) == answer
        return len(checked) - before

    async def tell(answer: Response) -> None:
        await trio.testing.wait_all_tasks_blocked()
        worker.client.hear(Responded(worker.asked[-1].number, answer, None, 0.0))

    assert [await ask("192.0.2.1", refused) for _ in range(3)] == [1, 0, 0]
    assert await ask("192.0.2.2", refused) == 1
    worker.clock.now += 7
    assert await ask("192.0.2.1", Response(401, b"{}", (NOSNIFF,))) == 1
