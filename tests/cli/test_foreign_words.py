"""What engines, peers and files say reaches the terminal spelled out, from every command and in every form (E10)."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hatchway.api.cli.host import store_token
from hatchway.api.cli.printing import note, print_json, say
from hatchway.engine.base.files import make_private_dir, write_private
from tests.support.fakes import ROOT
from tests.support.false_engine import answer, false_engine, stored
from tests.support.live_engine import command

EVIL = "a\x1b[2J\x9b2J\u202e\u2028\u2029\x85\x7f\r\n\x07\u2066\ufeff\U000e0041b"
"""C0, C1, both separators, overrides of direction, a mark without width, and a tag beyond the first plane."""


def shows_safely(output: bytes) -> bool:
    """Whether a terminal acts upon nothing in it but line ends of ours, and it has all that was said."""
    text = output.decode()
    return all(letter.isprintable() or letter == "\n" for letter in text) and not re.search("^b", text, re.MULTILINE)


ROW = {"session": EVIL, "method": EVIL, "identity": EVIL, "permissions": [EVIL], "expires_at": 2_000_000_000}
INSTANCE = {"identity": EVIL, "state": EVIL, "failure": EVIL, "host": EVIL, "image": EVIL, "requested_at": 1e9}
STARTED = {"img": EVIL, "instance": EVIL, "ip": EVIL, "log_err_path": EVIL, "log_out_path": EVIL, "pid": 7}
QUEUED = STARTED | {"pid": 0}
INSPECTION = {"valid": True, **ROW}
PROBLEM = {"status": 409, "code": EVIL, "detail": EVIL}
CALLS: list[tuple[tuple[str, ...], int, Any]] = [
    (("engine", "ping"), 200, INSPECTION),
    (("session", "list"), 200, {"sessions": [ROW]}),
    (("session", "revoke", "--all"), 200, {"sessions": [ROW]}),
    (("session", "revoke", "x"), 409, PROBLEM),
    (("instance", "list"), 200, {"instances": [INSTANCE, INSTANCE | {"host": "b", "host_answers": False}]}),
    (("instance", "show", "x"), 200, INSTANCE | {"command": [EVIL]}),
    (("instance", "stop", "x"), 200, INSTANCE),
    *(
        (
            ("instance", "start", "x.sif"),
            201,
            [{"payload": {"code": 0, "message": EVIL}}, {"payload": EVIL}, {"payload": entity}],
        )
        for entity in (STARTED, QUEUED)
    ),
]


@pytest.mark.parametrize(
    ("arguments", "status", "value"), CALLS, ids=lambda part: " ".join(part) if isinstance(part, tuple) else ""
)
async def test_no_answer_acts_upon_the_terminal(
    tmp_path: Path, arguments: tuple[str, ...], status: int, value: Any
) -> None:
    """E10: names, messages, numbers and problems of a false engine, as text and as JSON, whose values are the same."""
    home, code = tmp_path / "away", int(status >= 400)
    with false_engine(lambda _: answer(status, json.dumps(value).encode())) as (url, _):
        store_token(home, stored(url))
        done = await command(home, *arguments, code=code)
        assert shows_safely(done.stdout)
        assert shows_safely(done.stderr)
        if "stop" not in arguments:  # which names what was asked for
            assert rb"\x1b[2J\x9b2J\u202e\u2028" in done.stdout + done.stderr
        if "revoke" not in arguments:
            told = await command(home, *arguments, "--json", code=code)
            assert shows_safely(told.stdout)
            assert EVIL in _texts(json.loads(told.stdout))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


async def test_the_number_to_compare_is_spelled_out(tmp_path: Path) -> None:
    """E10: whoever pairs at a false engine sees its number as it is, on one line."""
    lines = json.dumps({"accepted": True, "match": EVIL, "expires_in": 30}).encode() + b"\n"
    with false_engine(lambda _: answer(200, lines)) as (url, _):
        done = await command(tmp_path / "away", "pair", "--url", url, code=1, typed=b"7K3M-Q9XD\n")
    assert rb"must be a\x1b[2J" in done.stderr
    assert shows_safely(done.stderr)


async def test_files_are_foreign_too(tmp_path: Path) -> None:
    """E10: lines of authorized_keys, records of the log, settings and the stored address are shown as they are."""
    home = tmp_path / "hatchway"
    make_private_dir(home)
    evil = EVIL.replace("\n", " ").replace("\r", " ")
    write_private(home / "authorized_keys", f'permissions="{evil}" ssh-rsa AAAA x\n'.encode())
    write_private(home / "config.toml", b'slurm.folder = "/a\\u202e\\u2066"\n')
    store_token(home, stored(f"http://127.0.0.1:1/{EVIL}"))
    make_private_dir(home / "log")
    record = {"seq": 1, "time": 1e9, "kind": "notice", "chart": EVIL, "event": EVIL, "actor": EVIL, "cause": EVIL}
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    write_private(home / "log" / "events.jsonl", text.encode() + b"\n")
    for arguments, code in (
        (("key", "list"), 0),
        (("config", "list"), 0),
        (("config", "get", "slurm.folder"), 0),
        (("config", "list", "--json"), 0),
        (("events",), 0),
        (("events", "--json"), 0),
        (("logout",), 1),
    ):
        done = await command(home, *arguments, code=code)
        assert done.stdout + done.stderr
        assert shows_safely(done.stdout), arguments
        assert shows_safely(done.stderr), arguments
    assert json.loads((await command(home, "events", "--json")).stdout) == record


def test_json_is_the_same_value_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """E10: every character comes back, lone surrogates among them; what people can read is not spelled out."""
    for code in (*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10000), 0x1F600, 0xE0001, 0x10FFFF):
        print_json({"k": chr(code)})
        text = capsys.readouterr().out
        assert json.loads(text) == {"k": chr(code)}
        assert shows_safely(text.encode())
    print_json("J\u00fcrgen \u6f22")
    assert capsys.readouterr().out == '"J\u00fcrgen \u6f22"\n'


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """E10: no word of others makes a line that could pass for one of ours."""
    say("one", "two\nthree")
    note("four\nfive")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("one\ntwo\\nthree\n", "four\\nfive\n")


OTHERS = {
    "__init__.py:_tell_version",
    "charts.py:check",  # of a file that one has run oneself
    "charts.py:show",
    "completion.py:completion",
    "events.py:people_printer",  # a day, and a line of styled pieces, each printable
    "events.py:tell",
    "events_ship.py:_print_unit",  # its target is shown without what acts
    "instances.py:log",  # on a terminal through _harmless; else the bytes as they are
    "lifecycle.py:_detach",  # the address and the folder of this host's own engine
    "man.py:man",
    "pairing.py:_count_down",
    "pairing.py:confirm",
    "pairing.py:say",  # the operator's own screen, whose texts are ASCII
    "sign_in.py:_tell",
    "unit.py:unit",
}
"""Functions that print by themselves: what they print is ours."""


def test_there_is_one_printer() -> None:
    """E10: outside the printer no command prints anything but a constant."""
    found = set()
    for path in sorted((ROOT / "api" / "cli").glob("*.py")):
        tree = ast.parse(path.read_text())
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
                printer = ast.unparse(call.func)
                if printer in ("print", "click.echo", "click.secho", "sys.stdout.write") and not isinstance(
                    call.args[0], ast.Constant
                ):
                    found.add(f"{path.name}:{function.name}")
    assert {name for name in found if not name.startswith("printing.py:")} == OTHERS
