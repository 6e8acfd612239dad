"""A newcomer's first ten minutes, for real: `python -m tests.ten_minutes` prints them with their times.

Run by root, the commands are an ordinary user's all the same: containers are no root's business.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page

from tests.support.browser import Host, Terminal, running_chromium, visiting
from tests.support.containers import IMAGE, new_name
from tests.support.fakes import ROOT
from tests.support.ordinary_user import PATH, as_user, python, user
from tests.support.processes import wait_answering

CLONE = "git clone -q URL hatchway && cd hatchway"
SET_UP = "python3 -m venv .venv && .venv/bin/pip install -q . && . .venv/bin/activate"
START = "hatchway engine start &"
PAIR = "hatchway engine pair --permissions SHELL,RUNTIME:READ"
SIGN_IN = (
    "hatchway key generate alice",
    "hatchway key register alice.pub",
    "hatchway login --key alice.pem",
)
RUN = "hatchway instance start busybox.sif --name NAME -- sh -c 'echo hello from $(hostname); sleep 600'"
READ = "hatchway instance log NAME"
END = ("hatchway instance stop NAME", "hatchway engine stop")
COMMANDS = (CLONE, SET_UP, START, PAIR, *SIGN_IN, RUN, READ, *END)
"""What the newcomer types, in this order. URL is where the project lies, NAME what the instance is called."""


class Newcomer:
    """Somebody with an empty home, and the transcript of what they typed, when, and what came back."""

    def __init__(self, home: Path) -> None:
        self.home, self.checkout = home, home / "hatchway"
        self.host = Host(home / ".hatchway")
        self.words = {"URL": ROOT.as_uri(), "NAME": new_name()}
        passed = {name: text for name, text in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        self.environ = passed | {
            "HOME": str(home),
            "PATH": f"{self.checkout}/.venv/bin:{PATH}",
            "HATCHWAY_PORT": str(self.host.port),
            "TERM": "dumb",
        }
        self._began = time.monotonic()
        self.transcript: list[str] = []

    def note(self, command: str, output: str, began: float) -> None:
        """One command in the transcript, with how long it took."""
        self.transcript.append(f"[{began - self._began:5.1f} s, took {time.monotonic() - began:.1f} s] $ {command}")
        self.transcript += [self._shown(line) for line in output.splitlines() if line.strip()]

    def _shown(self, line: str) -> str:
        line = line.replace(self.words["NAME"], "NAME").replace(str(self.home), "~")
        return line.replace(f":{self.host.port}", ":7420").rstrip()

    def call(self, command: str) -> list[str]:
        """The command as a process of the newcomer's shell."""
        for word, meant in self.words.items():
            command = command.replace(word, meant)
        return self.whose(["bash", "-c", command])

    def whose(self, command: list[str]) -> list[str]:
        # runuser gives the user's own HOME back, whatever it was told.
        return as_user(["env", f"HOME={self.home}", *command]) if os.geteuid() == 0 else command

    def type(self, command: str) -> str:
        """What it prints, once it has ended well."""
        began = time.monotonic()
        here = self.checkout if self.checkout.exists() else self.home
        real = command.replace("python3 ", f"{python()} ")
        done = subprocess.run(
            self.call(real), cwd=here, env=self.environ, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        self.note(command, done.stdout + done.stderr, began)
        return done.stdout

    @contextmanager
    def engine(self) -> Iterator[None]:
        """The engine in the background of the newcomer's shell; ended by the newcomer, or by us if that fails."""
        began = time.monotonic()
        with (self.home / "engine.log").open("wb") as log:
            command = self.call(f"exec {START.rstrip('& ')}")
            running = subprocess.Popen(command, cwd=self.checkout, env=self.environ, stdout=log, stderr=log)
        try:
            wait_answering(running, self.host.url, self.home / "engine.log")
            self.note(START, f"(answers at {self.host.url})", began)
            yield
            assert running.wait(20) == 0
        finally:
            running.terminate()
            running.wait(20)

    def pair(self) -> None:
        """A browser signs in by the code that the terminal shows, and the operator's `y`."""
        with running_chromium() as chromium, visiting(chromium, self.host) as visitor:
            began = time.monotonic()
            # `script` gives a terminal that is the newcomer's own: one that we open is root's.
            terminal = Terminal(self.whose(["script", "-qec", PAIR, "/dev/null"]), [], self.environ)
            try:
                page: Page = visitor.open(f"#pair={terminal.code()}")
                page.click("#pair-submit")
                page.locator("#match").get_by_text(terminal.match_number()).wait_for()
                terminal.type("y\n")
                page.locator("#view-home:visible").wait_for()
                terminal.wait_for(r"(?m)^.*[Ss]igned in.*$|approved")
            finally:
                terminal.close()
        self.note(PAIR, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.shown.replace("\r", "\n")), began)

    def read_log(self) -> str:
        """The instance's log, as soon as there is something in it."""
        began = time.monotonic()
        until = began + 20
        while not (said := self._log()) and time.monotonic() < until:
            time.sleep(0.1)
        self.note(READ, said, began)
        return said

    def _log(self) -> str:
        done = subprocess.run(self.call(READ), cwd=self.checkout, env=self.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def empty_home() -> Iterator[Path]:
    """A folder that the user who types may call a home, with a container image where images are looked for."""
    with tempfile.TemporaryDirectory(prefix="hatchway-newcomer-") as folder:
        os.chmod(folder, 0o711)
        home = Path(folder) / "home"
        images = home / ".local/share/hatchway/images"
        images.mkdir(parents=True)
        shutil.copy(IMAGE, images / "busybox.sif")
        # Git clones no checkout of another user's: one of root's is cloned by root, and handed over.
        subprocess.run(["git", "clone", "-q", "--bare", ROOT, home / "project.git"], check=True)
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", user().pw_name, home], check=True)
        yield home


def first_ten_minutes() -> tuple[list[str], str]:
    """The transcript, and what the instance's log said. Engine, instance and browser are gone at the end."""
    with empty_home() as home:
        newcomer = Newcomer(home)
        newcomer.words["URL"] = (home / "project.git").as_uri()
        newcomer.type(CLONE)
        newcomer.type(SET_UP)
        with newcomer.engine():
            newcomer.pair()
            for command in (*SIGN_IN, RUN):
                newcomer.type(command)
            said = newcomer.read_log()
            for command in END:
                newcomer.type(command)
        return newcomer.transcript, said


if __name__ == "__main__":
    print("\n".join(first_ten_minutes()[0]))
