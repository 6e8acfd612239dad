"""`hatchway instance start | list | show | stop | log`: containers on the engine's platform."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from hatchway.api.cli.groups import json_option, url_option

if TYPE_CHECKING:
    from threading import Event

    from hatchway.api.client.client import Client

LOOK_INTERVAL = 0.5
"""Seconds between two requests for the progress of a start, while it is shown."""


@click.group(
    epilog="""\b
Examples:
  hatchway instance start box.sif --name web
  hatchway instance start docker://alpine --memory 512M -- sh -c 'echo hello'
  hatchway instance log web --follow"""
)
def instance() -> None:
    """Start, watch and stop container instances."""


@instance.command(
    epilog="""\b
Examples:
  hatchway instance start box.sif
  hatchway instance start box.sif --name job --env N=3 --volume /data/in:/in -- sh -c 'wc -l /in/*'

The command runs in the instance, its output goes to the instance's log, and its end ends the instance.""",
)
@click.argument("image")
@click.argument("command", nargs=-1)
@click.option("--name", "identity", metavar="NAME", help="The instance's name; drawn if it is left out.")
@click.option("--env", "-e", multiple=True, metavar="NAME=VALUE", help="A variable inside; may be repeated.")
@click.option("--volume", "-v", multiple=True, metavar="SOURCE:DESTINATION[:rw]", help="A folder of the host's inside.")
@click.option("--cpu", metavar="N", help="Processors at most: 2, 0.5 or 500m.")
@click.option("--memory", metavar="SIZE", help="Memory at most: 512M or 2Gi.")
@click.option("--gpu", metavar="N", help="GPUs: all, or a count.")
@click.option("--fakeroot", is_flag=True, help="Be root inside, where the engine allows it.")
@click.option("--partition", metavar="NAME", help="Slurm's partition, where the engine lets it be asked for.")
@click.option("--account", metavar="NAME", help="Slurm's account, likewise.")
@click.option("--time-limit", metavar="TIME", help="The job's time, likewise: 30m or 2h.")
@url_option()
@json_option
def start(image: str, command: tuple[str, ...], identity: str | None, as_json: bool, **asked: Any) -> None:
    """Start an instance of IMAGE, and COMMAND in it.

    IMAGE is a .sif of the engine's image folders, or docker://... of a registry that it lists.
    """
    import secrets

    import msgspec

    from hatchway.api.cli.host import Here
    from hatchway.api.cli.printing import note, print_facts, print_json, say

    name = identity or "hw-" + secrets.token_hex(5)
    fields = {"image": image, "identity": name, "command": command} | {
        key: value for key, value in asked.items() if value
    }
    with Here().client() as client, _watched(client, name, quiet=as_json):
        started = client.start_instance(**fields)
    facts = msgspec.to_builtins(started)
    if as_json:
        print_json(facts)
        return
    if not started.pid:
        say(f"queued {started.identity}: {started.message}")
        note(f"it starts when it can; see: hatchway instance show {started.identity}")
        return
    say(f"started {started.identity}")
    print_facts({key: facts[key] for key in ("img", "pid", "log_out_path", "log_err_path")})


@contextmanager
def _watched(client: Client, name: str, *, quiet: bool) -> Iterator[None]:
    """On a terminal, show what the start is doing. Ctrl-C ends the command, which says that the engine goes on."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from threading import Event, Thread

    from hatchway.api.cli.busy import busy
    from hatchway.api.cli.printing import note

    client.inspect()  # signs in first, so that the looks below find a token
    over = Event()
    with busy(f"{name}: starting") as say:
        looks = Thread(target=_look, args=(client, name, say, over), daemon=True)
        looks.start()
        try:
            yield
        except KeyboardInterrupt:
            note(f"the engine finishes the start; see: hatchway instance show {name}")
            raise
        finally:
            over.set()
            looks.join()


def _look(client: Client, name: str, say: Callable[[str], None], over: Event) -> None:
    from hatchway.api.client.wire import ClientFault

    while not over.wait(LOOK_INTERVAL):
        # Where the instance is not there, the start itself says why.
        with suppress(ClientFault, KeyError):
            say(f"{name}: {client.instance(name)['progress'] or 'starting'}")


@instance.command("list", epilog="\b\nExample:\n  hatchway instance list --json")
@url_option()
@json_option
def list_(as_json: bool) -> None:
    """List the instances of engine or fleet, live or just ended."""
    from hatchway.api.cli.host import Here
    from hatchway.api.cli.printing import print_json, print_table, span

    with Here().client() as client:
        rows, now = client.instances(), client.flows.engine_time()
    if as_json:
        print_json(rows)
        return
    hosts = ("HOST",) if len({row.get("host") for row in rows}) > 1 else ()
    print_table(
        ("NAME", "STATE", "WHY", "EXIT", "AGE", *hosts, "IMAGE"),
        [
            (
                row.get("identity"),
                row.get("state"),
                _why(row),
                row.get("exit_code"),
                span(now - row.get("requested_at", 0)),
                *(row.get("host") for _ in hosts),
                row.get("image"),
            )
            for row in rows
        ],
        "no instances",
    )


def _why(row: dict[str, Any]) -> str:
    """What an instance waits for, or what ended it, or that its host does not answer."""
    if not row.get("host_answers", True):
        return f"{row.get('host')} does not answer"
    told = str(row.get("failure") or row.get("progress") or "")
    return told.removeprefix("queued (").removesuffix(")") if row.get("state") == "queued" else told


@instance.command(epilog="\b\nExample:\n  hatchway instance show web")
@click.argument("name")
@url_option()
@json_option
def show(name: str, as_json: bool) -> None:
    """Show an instance: what was asked for, and how it ended."""
    from hatchway.api.cli.host import Here

    with Here().client() as client:
        _print(client.instance(name), as_json)


@instance.command(epilog="\b\nExample:\n  hatchway instance stop web")
@click.argument("name")
@url_option()
@json_option
def stop(name: str, as_json: bool) -> None:
    """Stop an instance, and wait until it has ended."""
    from hatchway.api.cli.host import Here
    from hatchway.api.cli.printing import say

    with Here().client() as client:
        ended = client.stop_instance(name)
    if as_json:
        _print(ended, as_json)
    else:
        say(f"stopped {name}")


def _print(facts: dict[str, Any], as_json: bool) -> None:
    from hatchway.api.cli.printing import print_facts, print_json

    if as_json:
        print_json(facts)
        return
    if not facts.get("host_answers", True):
        facts = facts | {"host": f"{facts['host']} (does not answer: the rest is what it told last)"}
    shown = {key: value for key, value in facts.items() if value not in (None, "", [], False) and key != "host_answers"}
    print_facts({key: _for_people(key, value) for key, value in shown.items()})


def _for_people(key: str, value: Any) -> str:
    from hatchway.api.cli.printing import moment, size, span

    if isinstance(value, list):
        return " ".join(value)
    if key.endswith("_at"):
        return moment(value)
    return {"memory": size, "time_limit": span}.get(key, str)(value)


@instance.command(
    epilog="""\b
Examples:
  hatchway instance log web --follow
  hatchway instance log web --stream err"""
)
@click.argument("name")
@click.option("--follow", "-f", is_flag=True, help="Go on as it is written, until the instance ends or Ctrl-C.")
@click.option("--stream", type=click.Choice(["out", "err"]), default="out", show_default=True, help="Which of the two.")
@url_option()
def log(name: str, follow: bool, stream: str) -> None:
    """Print what an instance wrote."""
    import codecs

    from hatchway.api.cli.host import Here
    from hatchway.api.cli.interruptions import until_ctrl_c
    from hatchway.api.cli.printing import note
    from hatchway.api.client.wire import Unreachable

    silent = True
    shown = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    try:
        with Here().client() as client, until_ctrl_c(follow):
            for piece in client.instance_log(name, stream, follow=follow):
                silent = False
                if sys.stdout.isatty():
                    # What a container writes must not act upon the terminal that shows it.
                    click.echo(_harmless(shown.decode(piece)), nl=False)
                else:
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()
    except Unreachable:
        if not silent:
            note(f"the log was cut off, and the instance may run on: hatchway instance show {name}")
        raise
    if silent:
        other = "err" if stream == "out" else "out"
        note(f"it wrote nothing there; the other stream: hatchway instance log {name} --stream {other}")


def _harmless(text: str) -> str:
    from hatchway.engine.base.text import printable

    return "".join(letter if letter in "\n\t" else printable(letter) for letter in text.replace("\r\n", "\n"))
