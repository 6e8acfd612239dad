"""A real rsyslogd that listens on loopback and writes what it gets into a file, one message a line."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

from tests.support.certificate_authority import Authority
from tests.support.ports import free_port
from tests.support.waits import until

RSYSLOGD = "/usr/sbin/rsyslogd"

CONFIG = """\
global(workDirectory="{folder}" maxMessageSize="64k"{trust})
module(load="imtcp"{module})
template(name="told" type="string" string="%app-name% %msgid% %structured-data% %msg%\\n")
ruleset(name="in") {{ action(type="omfile" file="{output}" template="told" asyncWriting="off" flushOnTXEnd="on") }}
input(type="imtcp" port="{port}" address="127.0.0.1" ruleset="in")
"""


class Rsyslog:
    """Started and stopped, on one port. With an authority it speaks TLS alone; with `certificates` only to whom that
    authority knows."""

    def __init__(self, folder: Path, authority: Authority | None = None, *, certificates: bool = False) -> None:
        folder.mkdir()
        self.folder, self.port, self.output = folder, free_port(), folder / "output"
        trust = module = ""
        if authority is not None:
            certificate, key = authority.issue("rsyslog")
            trust = (
                f' defaultNetstreamDriverCAFile="{authority.path}" defaultNetstreamDriverCertFile="{certificate}"'
                f' defaultNetstreamDriverKeyFile="{key}"'
            )
            mode = "x509/certvalid" if certificates else "anon"
            module = f' streamDriver.name="gtls" streamDriver.mode="1" streamDriver.authMode="{mode}"'
        values = {"folder": folder, "trust": trust, "module": module, "output": self.output, "port": self.port}
        (folder / "rsyslog.conf").write_text(CONFIG.format(**values))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Rsyslog:
        """Until it listens."""
        arguments = [RSYSLOGD, "-n", "-f", str(self.folder / "rsyslog.conf"), "-i", str(self.folder / "pid")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log, env={**os.environ, "TZ": "UTC"})
        until(self._listens, what="rsyslogd listens")
        return self

    def _listens(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Let it end; what it has read is written down."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(20)

    def lines(self) -> list[str]:
        """The messages that it got."""
        return self.output.read_text().splitlines() if self.output.exists() else []

    def seqs(self) -> list[int]:
        """The numbers of their records."""
        return [int(found[1]) for line in self.lines() if (found := re.search(r'\[hatchway@32473 seq="(\d+)"', line))]
