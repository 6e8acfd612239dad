"""A real nginx in front of engines."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.waits import until

CONFIGURATION = """
daemon off; pid {folder}/pid; {user}
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  {upstream}
  server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }}
}}
"""


@dataclass
class Proxy:
    """What a console needs of what it dials."""

    port: int


@contextmanager
def running_nginx(folder: Path, port: int, location: str, upstream: str = "") -> Iterator[None]:
    """nginx with one `location`, and with an `upstream` block where one is given; gone at the end."""
    folder.mkdir()
    # Started by root it would run as nobody, who may not enter the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    text = CONFIGURATION.format(folder=folder, user=user, upstream=upstream, port=port, location=location)
    (folder / "nginx.conf").write_text(text)
    program = shutil.which("nginx", path="/usr/sbin:" + os.environ["PATH"])
    assert program
    arguments = [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port), what="nginx")
        yield
    finally:
        process.terminate()
        process.wait(10)


def listens(port: int) -> bool:
    """Whether anybody does, at 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
