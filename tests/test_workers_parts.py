"""The parts of a door process: shared words, messages, what it keeps of the engine's answers and for how long."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import structlog
import trio
from hypothesis import given
from hypothesis import strategies as st

from api.http.call import JSON, NO_STORE, NOSNIFF
from api.http.front import Message, Receive, Scope, Send
from api.transport.apps import LEFT, Inbox
from api.transport.lane import LaneAnswer, LaneRequest
from api.workers import hot
from api.workers.behind import Behind
from api.workers.desk import Desk
from api.workers.door import make_front
from api.workers.hot import Hot
from api.workers.messages import Ask, Configure, Frames, ToEngine, Told, frame
from api.workers.relay import Relay
from api.workers.tally import Tally
from engine import validity
from engine.setting_sources import as_plain, from_plain
from engine.settings import Settings
from engine.trust.authorized_keys import AuthorizedKeys
from engine.validity import Mark, Validity
from tests.fakes import key, virtual_engine


@pytest.fixture
def words() -> Iterator[Validity]:
    """Memory that the test writes as the engine would."""
    fd = validity.create()
    yield Validity(fd, write=True)
    os.close(fd)


def test_what_one_process_writes_the_other_sees() -> None:
    """A step ends what was marked before it, and nothing of other counters; the reader can't write."""
    fd = validity.create()
    looking = validity.readable(fd)
    writer, reader = Validity(fd, write=True), Validity(looking)
    writer.hold_until()
    marks = {name: reader.mark(name) for name in ("one", "two")}
    assert all(reader.holds(mark, 5.0) for mark in marks.values())
    writer.moved("one")
    assert [reader.holds(mark, 5.0) for mark in marks.values()] == [False, True]
    writer.moved_all()
    assert not reader.holds(marks["two"], 5.0)
    with pytest.raises(TypeError):
        reader.moved("one")
    with pytest.raises(PermissionError):
        Validity(looking, write=True)
    os.close(fd)
    os.close(looking)


def test_nothing_is_kept_past_what_the_engine_has_heard(words: Validity) -> None:
    """Where others write to the store too, a mark holds as long as the engine says; at first not at all."""
    mark = words.mark("one")
    assert not words.holds(mark, 0.0)
    words.hold_until(10.0)
    assert words.holds(mark, 9.9)
    assert not words.holds(mark, 10.0)


@given(st.lists(st.binary(max_size=300)), st.data())
def test_messages_come_out_as_they_went_in(sent: list[bytes], data: st.DataObject) -> None:
    """However the stream is cut, each message is heard once, whole and in order."""
    stream = b"".join(map(frame, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    frames = Frames()
    heard = [
        message
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for message in frames.feed(stream[begin:end])
    ]
    assert [msgspec.msgpack.decode(message) for message in heard] == sent


def test_a_request_survives_the_channel() -> None:
    """What a door asks is what its client sent, byte for byte, whatever bytes it sent."""
    request = LaneRequest(
        b"GET", b"/\xff?a", ((b"host", b"\x80"),), b"\0\xff", ("::1%lo", 5), ("127.0.0.1", 7420), True
    )
    asked = msgspec.msgpack.Decoder(ToEngine).decode(frame(Ask(7, request))[4:])
    assert asked == Ask(7, request)


def test_settings_survive_the_channel() -> None:
    """Every setting a door is told is the engine's own, a folder with a comma in its name too."""
    settings = Settings(image_folders=("/a,b", "/c"), trusted_proxies=("10.0.0.0/8",), tls_cert=Path("/x"), port=0)
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(as_plain(settings)))
    assert from_plain(told) == settings


@pytest.mark.virtual_time
async def test_counts_of_a_door_are_as_if_the_engine_had_counted(home: Path) -> None:
    """The same observations, made by a door or by the engine, are the same text in /metrics."""
    seconds = [0.0, 0.0005, 0.00051, 0.3, 0.0025, 11.0, 61.0, 0.05]
    tally = Tally()
    told: list[list[bytes]] = []
    for by_door in (False, True):
        async with virtual_engine(home) as engine:
            for one in seconds:
                (tally if by_door else engine.metrics).answered("POST", "/api/auth/verify/", 200, one)
            for row in tally.take():
                engine.metrics.answered_elsewhere(row.method, row.path, row.status, row.buckets, row.seconds)
            told.append(
                [line for line in engine.metrics.text().splitlines() if b"request_d" in line or b"sign_" in line]
            )
    assert told[0] == told[1]
    assert tally.take() == []


@dataclass
class FakeClock:
    """Both clocks, set by hand."""

    now: float = 1000.0

    def wall(self) -> float:
        return self.now

    def elapsed(self) -> float:
        return self.now


ANSWER = LaneAnswer(200, (JSON, NO_STORE, NOSNIFF), b'{"valid":true}')


@dataclass
class Asked:
    """A door whose engine is the test: what it asked, and what it is told."""

    words: Validity
    home: Path
    asked: list[Any] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.keys = AuthorizedKeys(self.home / "authorized_keys")
        self.keys.register(key().public, ("SHELL",), "one")
        self.desk = Desk(self.words, self.keys, self.asked.append)
        self.desk.clock = cast(Any, self.clock)
        own = key("own").public.openssh()
        bound = (("127.0.0.1", 7420),)
        self.desk.configure(Configure(str(self.home), as_plain(Settings()), bound, own, b"k" * 32))
        self.hot, front = make_front(self.desk, self.home)
        front.bound = bound

    async def inspect(self, token: str, until: float = 2000.0) -> bool:
        """Inspect; whether the engine was asked."""
        before = len(self.asked)
        headers = ((b"host", b"127.0.0.1:7420"), (b"authorization", f"Bearer {token}".encode()))
        reply = ask(self.hot, "/api/auth/inspect/", headers)
        if isinstance(reply, Awaitable):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell, token, until)
                reply = await reply
        assert reply == ANSWER
        return len(self.asked) > before

    async def _tell(self, token: str, until: float) -> None:
        await trio.testing.wait_all_tasks_blocked()
        self.desk.hear(Told(self.asked[-1].number, ANSWER, self.words.mark(token), until))


def ask(hot: Hot, target: str, headers: tuple[tuple[bytes, bytes], ...]) -> Any:
    """One request at the lane."""
    return hot(LaneRequest(b"GET", target.encode(), headers, b"", ("127.0.0.1", 5), ("127.0.0.1", 7420), False))


@pytest.fixture
def door(words: Validity, home: Path) -> Asked:
    words.hold_until()
    home.mkdir(mode=0o700)
    return Asked(words, home)


async def test_an_answer_is_given_again_while_nothing_happens(door: Asked) -> None:
    """The second inspection asks nobody; one after the session's end in time, by the wall clock, asks again."""
    assert await door.inspect("a", until=1100.0)
    assert not await door.inspect("a")
    door.clock.now = 1099.9
    assert not await door.inspect("a")
    door.clock.now = 1100.0
    assert await door.inspect("a", until=1100.0)
    assert await door.inspect("a", until=1100.0), "an answer that is over is not kept"


async def test_a_step_a_reload_and_a_key_end_what_is_kept(door: Asked) -> None:
    """After each of them the engine is asked once more; a step of another session changes nothing."""
    for happens in (
        lambda: door.words.moved("a"),
        door.words.moved_all,
        lambda: door.keys.register(key().public, ("SHELL", "AGENT"), "one"),
        lambda: door.keys.unregister("one"),
    ):
        await door.inspect("a")
        assert not await door.inspect("a")
        door.words.moved("b")
        assert not await door.inspect("a")
        happens()
        assert await door.inspect("a")


async def test_keys_that_are_refused_have_nothing_kept(door: Asked) -> None:
    """While authorized_keys is open to others, every inspection is the engine's to judge."""
    await door.inspect("a")
    (door.home / "authorized_keys").chmod(0o644)
    assert [await door.inspect("a") for _ in range(3)] == [True] * 3


async def test_little_is_kept(door: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of tokens pushes the oldest out, and no more is held."""
    monkeypatch.setattr(hot, "KEPT", 100)
    for number in range(110):
        await door.inspect(f"{number}")
    assert len(door.hot._kept) == 100
    assert await door.inspect("0")
    assert not await door.inspect("109")


async def test_what_a_door_does_not_see_through_is_left_alone(door: Asked) -> None:
    """Foreign hosts and other paths are the app's; two tokens and none are the engine's."""
    host = (b"host", b"127.0.0.1:7420")
    assert ask(door.hot, "/api/auth/inspect/", ((b"host", b"evil.example"),)) is None
    assert ask(door.hot, "/api/auth/sessions/", (host,)) is None
    for tokens in ((), ((b"authorization", b"Bearer a"),) * 2):
        waiting = ask(door.hot, "/api/auth/inspect/", (host, *tokens))
        assert isinstance(waiting, Awaitable)
        waiting.close()  # type: ignore[attr-defined]


async def test_challenges_of_a_shared_store_are_the_engines(door: Asked) -> None:
    """Without a key for them a door asks; with it, the challenge is one that the key's holder knows."""
    host = ((b"host", b"127.0.0.1:7420"),)
    made = msgspec.json.decode(ask(door.hot, "/api/auth/challenge/", host).body)
    assert door.desk.challenges is not None
    assert door.desk.challenges.read(made["nonce"]).identity == "any"
    own = key("own").public.openssh()
    door.desk.configure(Configure(str(door.home), as_plain(Settings()), (), own, b""))
    waiting = ask(door.hot, "/api/auth/challenge/", host)
    assert isinstance(waiting, Awaitable)
    waiting.close()  # type: ignore[attr-defined]


def test_the_mark_of_a_session_is_one_of_many(words: Validity) -> None:
    """Counters are spread: a thousand sessions share few."""
    assert len({words.mark(f"session {number}").counter for number in range(1000)}) > 950
    assert isinstance(words.mark("x"), Mark)


async def answer_whole(receive: Receive, send: Send) -> None:
    """A body told in three parts, the last empty."""
    await send({"type": "http.response.start", "status": 201, "headers": [(b"x", b"\xff")]})
    for part, more in ((b"one", True), (b"two", True), (b"", False)):
        await send({"type": "http.response.body", "body": part, "more_body": more})


async def fail_at_once(receive: Receive, send: Send) -> None:
    """An app in error before its answer."""
    raise RuntimeError("a fault of the app's")


async def fail_half_way(receive: Receive, send: Send) -> None:
    """An app in error within its answer."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise RuntimeError("a fault of the app's")


async def hold(receive: Receive, send: Send) -> None:
    """An answer that is held until its client leaves."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"held", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def relayed(home: Path, answer: Callable[[Receive, Send], Awaitable[None]]) -> AsyncIterator[list[Message]]:
    """A request of 200,000 bytes through relay and back; what the door's server is told, until its client leaves."""
    home.mkdir(mode=0o700)
    body = bytes(200_000)
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["client"], scope["scheme"], (await receive())["body"] == body))
        await answer(receive, send)
        seen.append("ended")

    async with trio.open_nursery() as nursery:
        await nursery.start(Behind(app, home, AuthorizedKeys(home / "authorized_keys")).serve)
        told: list[Message] = []
        inbox = Inbox()

        async def send(message: Message) -> None:
            told.append(message)

        scope = dict.fromkeys(("method", "http_version", "path"), "x") | {"scheme": "https", "client": ("::1", 1)}
        more: Scope = {"raw_path": b"/", "query_string": b"", "headers": [], "server": None, "hatchway.body": body}
        done = trio.Event()

        async def talk() -> None:
            await Relay(home)({**scope, **more, "extensions": {LEFT: inbox.when_left}}, inbox.receive, send)
            done.set()

        nursery.start_soon(talk)
        with trio.fail_after(20):
            while not (done.is_set() or (told and told[-1].get("body") == b"held")):
                await trio.sleep(0.01)
            yield told
            await inbox.put({"type": "http.disconnect"})
            await done.wait()
            while answer is hold and seen[-1] != "ended":
                await trio.sleep(0.01)
        assert seen[0] == (("::1", 1), "https", True)
        nursery.cancel_scope.cancel()


async def test_an_answer_comes_back_part_by_part(home: Path) -> None:
    """Status, headers and each part of the body are what the app said, in as many messages."""
    async with relayed(home, answer_whole) as told:
        assert (told[0]["status"], told[0]["headers"]) == (201, [(b"x", b"\xff")])
        parts = [(message["body"], message["more_body"]) for message in told[1:]]
        assert parts == [(b"one", True), (b"two", True), (b"", False)]


@pytest.mark.parametrize(("app", "messages"), [(fail_at_once, 0), (fail_half_way, 2)])
async def test_an_app_that_fails_leaves_its_answer_unfinished(home: Path, app: Any, messages: int) -> None:
    """The door's server is left to end it, at once, as it would for an app of its own; the fault is logged."""
    with structlog.testing.capture_logs() as lines:
        async with relayed(home, app) as told:
            assert len(told) == messages
            assert not told or told[-1]["more_body"]
    assert [line["event"] for line in lines] == ["relayed_request_failed"]


async def test_a_client_that_leaves_is_known_to_the_app(home: Path) -> None:
    """The app is told, and ends."""
    async with relayed(home, hold) as told:
        assert told[-1]["body"] == b"held"


async def test_without_an_engine_the_answer_is_503(home: Path) -> None:
    """Nobody listens: a problem that says when to come again."""
    home.mkdir(mode=0o700)
    told: list[Message] = []

    async def send(message: Message) -> None:
        told.append(message)

    await Relay(home)({"type": "http"}, trio.sleep_forever, send)
    assert told[0]["status"] == 503
    assert b"retry-after" in dict(told[0]["headers"])
