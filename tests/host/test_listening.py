"""Where an engine listens, and which loopback names are its own there: real engines, each in a network of its own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.command import process
from tests.support.hostile_requests import request
from tests.support.networks import own_network
from tests.support.processes import prepare, running_engine
from tests.support.real_pairings import PAIR
from tests.support.waits import until

pytestmark = [pytest.mark.process, pytest.mark.network]

PORT = 7420
LAN = "192.0.2.7"
NAMES = ("127.0.0.1", "localhost", "[::1]", "x.localhost")
"""Every kind of loopback name."""


def status(address: str, host: str, *headers: str, close: bool = False) -> int:
    """Of a challenge that is asked for at `address`, under the name `host`."""
    data = request("GET", "/api/auth/challenge/", *headers, port=PORT, host=f"{host}:{PORT}", close=close)
    with socket.create_connection((address, PORT), timeout=20) as peer:
        peer.sendall(data)
        return int(peer.recv(65536).split(b" ", 2)[1])


@contextmanager
def squatter(address: str) -> Iterator[None]:
    """Another process has the port at this address."""
    with closing(socket.create_server((address, PORT), family=socket.AF_INET6 if ":" in address else socket.AF_INET)):
        yield


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::"])
def test_both_families_of_localhost(tmp_path: Path, host: str) -> None:
    """Whoever dials `localhost`, by IPv4 or IPv6, reaches this engine, and every loopback name is its own: nobody else
    of the host can take the other address."""
    with (
        own_network(),
        running_engine(tmp_path / "home", PORT, HATCHWAY_HOST=host, HATCHWAY_INSECURE_HTTP="true"),
    ):
        for address in ("127.0.0.1", "::1"):
            assert [status(address, name) for name in NAMES] == [200] * 4
            with pytest.raises(OSError, match="in use"), squatter(address):
                pass


def test_any_free_port_is_free_in_both_families(tmp_path: Path) -> None:
    """Port 0: one port, at both loopback addresses."""
    with own_network(), running_engine(tmp_path / "home") as engine:
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with socket.socket(family) as peer:
                peer.connect((address, engine.port))


@pytest.mark.parametrize(("mine", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
def test_a_name_that_reaches_somebody_else_is_not_ours(tmp_path: Path, mine: str, other: str) -> None:
    """Where another process has the other address, `localhost` and it are refused, and the log says so; the address
    that the engine has works on."""
    own, foreign = (name for name in (f"[{one}]" if ":" in one else one for one in (mine, other)))
    with own_network(), squatter(other), running_engine(tmp_path / "home", PORT, HATCHWAY_HOST=mine) as engine:
        assert status(mine, own) == 200
        assert [status(mine, name) for name in (foreign, "localhost", "x.localhost")] == [421] * 3
        until(lambda: f"another process listens on {foreign}:{PORT}" in engine.log(), what="the log")
        engine.command("engine", "ping")


def test_localhost_asked_for_by_name_is_had_whole_or_not_at_all(tmp_path: Path) -> None:
    """`--host localhost` does not start where another process has one of its addresses, and says which."""
    home = tmp_path / "home"
    prepare(home)
    with own_network(), squatter("::1"):
        told = process("engine", "start", "--host", "localhost", HATCHWAY_HOME=str(home))
    assert told.returncode == 1
    assert "can't listen on localhost port 7420: Address already in use (::1)" in told.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("host", [LAN, "0.0.0.0"])
def test_a_loopback_name_wants_a_loopback_connection(tmp_path: Path, host: str, workers: str) -> None:
    """From the network nobody gets a challenge that names loopback, which a false engine at the end of a tunnel could
    have signed; nor is a page of such a name one of ours. The address that was reached is."""
    settings = {"HATCHWAY_HOST": host, "HATCHWAY_INSECURE_HTTP": "true", "HATCHWAY_WORKERS": workers}
    with own_network(LAN), running_engine(tmp_path / "home", PORT, **settings):
        assert [status(LAN, name) for name in NAMES] == [421] * 4
        assert status(LAN, LAN) == 200
        assert [status(LAN, LAN, f"Origin: http://{name}:{PORT}") for name in NAMES] == [403] * 4
        # h11 reads this one, and not the parser before it.
        assert [status(LAN, name, close=True) for name in NAMES] == [421] * 4
        if host != LAN:
            assert [status("127.0.0.1", name) for name in NAMES] == [200] * 4


def test_a_loopback_name_that_the_setting_has(tmp_path: Path) -> None:
    """A container's published port: the operator has said that people dial 127.0.0.1, whatever is reached here."""
    settings = {"HATCHWAY_HOST": LAN, "HATCHWAY_INSECURE_HTTP": "true", "HATCHWAY_ADDRESSES": f"127.0.0.1:{PORT}"}
    with own_network(LAN), running_engine(tmp_path / "home", PORT, **settings):
        assert [status(LAN, name) for name in NAMES] == [200, 421, 421, 421]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::", "x.localhost"])
def test_without_ipv6(tmp_path: Path, host: str) -> None:
    """With IPv6 switched off the engine starts all the same, its own command reaches it, and `localhost` is its own:
    there is no other address that anybody could have."""
    with (
        own_network(ipv6=False),
        running_engine(tmp_path / "home", PORT, HATCHWAY_HOST=host, HATCHWAY_INSECURE_HTTP="true") as engine,
    ):
        engine.command("engine", "ping")
        assert [status("127.0.0.1", name) for name in NAMES] == [200] * 4
        assert "another process" not in engine.log()


def test_an_address_that_this_host_has_not_got(tmp_path: Path) -> None:
    """It is refused, though the other loopback address would be there: nothing that was asked for is."""
    home = tmp_path / "home"
    prepare(home)
    with own_network(ipv6=False):
        told = process("engine", "start", "--host", "::1", HATCHWAY_HOME=str(home))
    assert told.returncode == 1
    assert "can't listen on ::1 port 7420: " in told.stderr


def test_every_address_of_both_families(tmp_path: Path) -> None:
    """`--host ::` listens on IPv4 and IPv6, and a peer is known by its own family's address."""
    with (
        own_network(LAN),
        running_engine(tmp_path / "home", PORT, HATCHWAY_HOST="::", HATCHWAY_INSECURE_HTTP="true") as engine,
    ):
        assert status(LAN, LAN) == status("::1", "[::1]") == 200
        assert engine.url == f"http://127.0.0.1:{PORT}"
        with socket.create_connection((LAN, PORT), source_address=(LAN, 0)) as peer:
            body = json.dumps({"code": "00000000"}).encode()
            head = "Content-Type: application/json"
            peer.sendall(request("POST", PAIR, head, port=PORT, host=f"{LAN}:{PORT}", body=body))
            assert peer.makefile("rb").read().split(b" ", 2)[1] == b"401"
        record = json.loads(engine.command("events", "--json", "--chart", "pairing"))
        assert record["address"] == LAN
