"""Addresses that count for a while: as long as a tunnel's connection lives, or for a time (HTTP manners)."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from hatchway.api.host.added_addresses import MOST, AddedAddresses
from hatchway.api.host.operator_socket import SILENCE, OperatorSocket
from hatchway.api.http.gateway import Addresses
from hatchway.api.http.problems import ForeignOrigin, MisdirectedRequest
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import InvalidRequest, TooManyRequests
from hatchway.engine.engine import Engine
from tests.support.hostile_requests import refusal_of

pytestmark = pytest.mark.virtual_time

NEAR = "127.0.0.1:53117"


class Told:
    """What the gateway goes by."""

    def __init__(self) -> None:
        self.now: list[str] = []

    async def take(self, added: tuple[str, ...]) -> None:
        """For `AddedAddresses`."""
        self.now = list(added)


async def test_an_added_address_ends_with_its_time(clock: TrioClock) -> None:
    """To the second; one without a time stays, one that is added again counts anew."""
    told = Told()
    addresses = AddedAddresses(clock, told.take)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(addresses.expire)
        await addresses.add(NEAR, 3600)
        await addresses.add("127.0.0.1:9001", None)
        await addresses.add("gate.example:443", 60)
        await trio.sleep(61)
        assert told.now == ["127.0.0.1:53117", "127.0.0.1:9001"]
        await trio.sleep(3400)
        await addresses.add(NEAR, 3600)
        await trio.sleep(3590)
        assert NEAR in told.now
        assert [row["seconds"] for row in addresses.listed()] == [10, None]
        await trio.sleep(11)
        assert told.now == ["127.0.0.1:9001"]
        nursery.cancel_scope.cancel()


async def test_a_tunnel_holds_its_address_and_no_hand_takes_it(clock: TrioClock) -> None:
    """Two tunnels of one address hold it until the second is gone; what is not there to remove is said."""
    told = Told()
    addresses = AddedAddresses(clock, told.take)
    async with addresses.held(NEAR):
        async with addresses.held(NEAR):
            with pytest.raises(InvalidRequest, match="goes when that tunnel is closed"):
                await addresses.remove(NEAR)
            assert addresses.listed() == [{"address": NEAR, "by": "tunnel", "tunnels": 2}]
        assert told.now == [NEAR]
    assert told.now == []
    with pytest.raises(InvalidRequest, match="address list"):
        await addresses.remove(NEAR)
    await addresses.add(NEAR, 60)
    await addresses.remove(NEAR)
    assert told.now == []
    assert addresses.listed() == []


async def test_there_are_only_so_many(clock: TrioClock) -> None:
    """A program that adds for ever is refused, and may still add anew what is there."""
    addresses = AddedAddresses(clock, Told().take)
    for port in range(1, MOST + 1):
        await addresses.add(f"127.0.0.1:{port}", None)
    await addresses.add("127.0.0.1:1", 60)
    with pytest.raises(TooManyRequests):
        await addresses.add("127.0.0.1:9999", None)
    with pytest.raises(TooManyRequests):
        async with addresses.held(NEAR):
            pass


class Conversation:
    """The operator socket's other end."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        from hatchway.api.host.operator_lines import Lines

        self.stream, self.lines = stream, Lines(stream)

    async def ask(self, **request: object) -> dict[str, object]:
        """One line out, one in."""
        await self.lines.write(request)
        answer = await self.lines.read()
        assert answer is not None
        return answer


def operator_socket(engine: Engine, told: Told) -> OperatorSocket:
    """An operator socket that tells `told`."""
    addresses = AddedAddresses(engine.clock, told.take)
    return OperatorSocket(engine, lambda: {"url": None}, lambda: None, engine.reload, addresses)


async def test_a_held_address_goes_with_its_conversation(engine: Engine) -> None:
    """The conversation goes on with other requests, a refused one among them, and the address with its end."""
    told, (ours, theirs) = Told(), trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operator_socket(engine, told).talk, theirs)
        talk = Conversation(ours)
        assert await talk.ask(op="hold_address", address=NEAR) == {"ok": True, "address": NEAR}
        assert told.now == [NEAR]
        assert "error" in await talk.ask(op="address_add", address="nowhere")
        assert (await talk.ask(op="status"))["sessions"] == 0
        assert await talk.ask(op="beat") == {"ok": True, "event": "beat"}
        await ours.aclose()
    assert told.now == []


async def test_whoever_falls_silent_holds_nothing(engine: Engine) -> None:
    """A lost network or a sleeping machine closes nothing: without a beat the address goes, a code that is out with it,
    and a beat is no answer to the question."""
    told, (ours, theirs) = Told(), trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operator_socket(engine, told).talk, theirs)
        talk = Conversation(ours)
        await talk.ask(op="hold_address", address=NEAR)
        for _ in range(4):
            await trio.sleep(SILENCE - 1)
            await talk.ask(op="beat")
        assert told.now == [NEAR]
        assert (await talk.ask(op="pair", lifetime=3600))["event"] == "issued"
        await trio.sleep(SILENCE / 2)
        assert await talk.ask(op="beat") == {"event": "beat"}
        assert engine.status()["codes"] == 1
        await trio.sleep(SILENCE + 1)
    assert told.now == []
    assert engine.status()["codes"] == 0


@pytest.mark.parametrize("crossed", [None, {"answer": "y"}, {"op": "beat"}])
async def test_a_request_right_after_a_code_has_ended_is_answered(
    engine: Engine, crossed: dict[str, object] | None
) -> None:
    """However quick the command is: its request is no answer to a question that is over, and a late answer no request.
    The tunnel would count as silent otherwise, and its engine would not be stopped."""
    ours, theirs = trio.testing.memory_stream_pair()
    passes_on = theirs.send_stream.send_all_hook
    assert passes_on is not None

    async def until_the_command_has_gone_on() -> None:
        await passes_on()
        await trio.testing.wait_all_tasks_blocked()

    theirs.send_stream.send_all_hook = until_the_command_has_gone_on
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operator_socket(engine, Told()).talk, theirs)
        talk = Conversation(ours)
        await talk.ask(op="hold_address", address=NEAR)
        assert (await talk.ask(op="pair", lifetime=3600))["event"] == "issued"
        await trio.sleep(SILENCE - 1)
        assert await talk.ask(op="beat") == {"event": "beat"}
        assert (await talk.lines.read() or {})["event"] == "expired"
        if crossed is not None:
            await talk.lines.write(crossed)
        await talk.lines.write({"op": "status"})
        with trio.fail_after(SILENCE / 2):
            status = await talk.lines.read() or {}
            if "event" in status:
                status = await talk.lines.read() or {}
        assert status["codes"] == 0
        await ours.aclose()


async def test_a_request_while_a_code_is_out_withdraws_it(engine: Engine) -> None:
    """The command asks nobody any more: it wants its engine stopped."""
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(operator_socket(engine, Told()).talk, theirs)
        talk = Conversation(ours)
        await talk.ask(op="hold_address", address=NEAR)
        assert (await talk.ask(op="pair", lifetime=3600))["event"] == "issued"
        with trio.fail_after(SILENCE / 2):
            assert (await talk.ask(op="status"))["codes"] == 0
        await ours.aclose()


def test_a_tunnels_address_counts_where_a_tunnel_may_have_led() -> None:
    """On a connection to loopback or the Unix socket, for Host and Origin, and by that very name alone."""
    ours = Addresses((("127.0.0.1", 7420), ("192.0.2.7", 7420)), (), (), (NEAR, "gate.example:443"))
    for local in ("127.0.0.1", None):
        ours.check_host(NEAR, None, local)
        ours.check_origin(f"http://{NEAR}", local)
    ours.check_host("gate.example:443", None, "192.0.2.7")
    assert isinstance(refusal_of(lambda: ours.check_host(NEAR, None, "192.0.2.7")), MisdirectedRequest)
    assert isinstance(refusal_of(lambda: ours.check_origin(f"http://{NEAR}", "192.0.2.7")), ForeignOrigin)
    for host in ("localhost:53117", "[::1]:53117", "x.localhost:53117", "127.0.0.1:53118"):
        assert isinstance(refusal_of(partial(ours.check_host, host, None, None)), MisdirectedRequest)


def test_plain_localhost_is_the_name_of_the_unix_socket() -> None:
    """`curl --unix-socket .../http.sock http://localhost/`; over a port that name is another's."""
    ours = Addresses((("127.0.0.1", 7420),), ())
    ours.check_host("localhost", None, None)
    ours.check_host("localhost:80", None, None)
    for host, local in (("localhost", "127.0.0.1"), ("localhost:443", None), ("localhost:81", None), ("[::1]", None)):
        refused = refusal_of(partial(ours.check_host, host, None, local))
        assert isinstance(refused, MisdirectedRequest)


def test_the_421_names_the_commands() -> None:
    """For a loopback name with another port: what adds it for a while, what lists and what removes."""
    refused = refusal_of(lambda: Addresses((("127.0.0.1", 7420),), ()).check_host("localhost:9000", None, "127.0.0.1"))
    assert refused is not None
    assert "`hatchway engine address add localhost:9000 --for 8h` (`list`" in refused.detail
