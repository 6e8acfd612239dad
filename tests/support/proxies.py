"""Real proxies that end TLS at https://gate.example, configured as the handbook shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.readme import CHAPTERS
from tests.support.nginx import listens
from tests.support.waits import until

NAME = "gate.example"
_TEXT = CHAPTERS["proxies"].read_text()


def handbook_block(language: str) -> str:
    """The handbook's lines for one of the proxies."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", _TEXT, re.DOTALL | re.MULTILINE)
    assert isinstance(block, str)
    return block


def make_certificate(folder: Path) -> None:
    """`cert.pem` and `key.pem`, for NAME, signed by itself."""
    subprocess.run(
        (
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", "key.pem", "-out", "cert.pem"),
            *("-days", "9", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"),
        ),
        cwd=folder,
        check=True,
        capture_output=True,
    )


def _nginx(folder: Path) -> tuple[str, list[str]]:
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = f"""
daemon off; pid {folder}/pid; user root; error_log {folder}/error.log;
events {{ }}
http {{
  access_log off; {temporary}
  server {{
    listen 443 ssl; listen [::]:443 ssl; ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
    {handbook_block("nginx")}
  }}
}}
"""
    return text, ["nginx", "-p", str(folder), "-c", str(folder / "conf")]


def _caddy(folder: Path) -> tuple[str, list[str]]:
    site = handbook_block("caddy").replace(f"{NAME} {{", f"{NAME} {{\n    tls {folder}/cert.pem {folder}/key.pem")
    text = f"{{\n    admin off\n    storage file_system {folder}/store\n    auto_https disable_redirects\n}}\n{site}"
    return text, ["caddy", "run", "--config", str(folder / "conf"), "--adapter", "caddyfile"]


def _apache(folder: Path) -> tuple[str, list[str]]:
    modules = "\n".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so"
        for name in ("mpm_event", "authz_core", "proxy", "proxy_http", "headers", "socache_shmcb", "ssl")
    )
    text = f"""
{modules}
ServerRoot {folder}
ServerName {NAME}
PidFile {folder}/pid
ErrorLog {folder}/error.log
Mutex file:{folder} default
Listen 443
<VirtualHost *:443>
SSLEngine on
SSLCertificateFile {folder}/cert.pem
SSLCertificateKeyFile {folder}/key.pem
{handbook_block("apache")}
</VirtualHost>
"""
    return text, ["apache2", "-X", "-f", str(folder / "conf")]


def _lighttpd(folder: Path) -> tuple[str, list[str]]:
    text = f"""
server.modules = ("mod_openssl", "mod_proxy")
server.document-root = "{folder}"
server.errorlog = "{folder}/error.log"
server.port = 443
ssl.engine = "enable"
ssl.pemfile = "{folder}/cert.pem"
ssl.privkey = "{folder}/key.pem"
{handbook_block("lighttpd")}
"""
    return text, ["lighttpd", "-D", "-f", str(folder / "conf")]


KINDS = {"nginx": _nginx, "caddy": _caddy, "apache": _apache, "lighttpd": _lighttpd}
"""What makes a configuration and the program's arguments."""


@contextmanager
def running_proxy(kind: str, folder: Path) -> Iterator[Path]:
    """The proxy on port 443, before an engine on 7420; its certificate's file. Gone at the end."""
    folder.mkdir()
    make_certificate(folder)
    text, (name, *arguments) = KINDS[kind](folder)
    with running_program(name, arguments, folder, text, 443):
        yield folder / "cert.pem"


@contextmanager
def running_program(name: str, arguments: list[str], folder: Path, text: str, port: int) -> Iterator[None]:
    """A proxy with the configuration `text` in `folder/conf`, once it listens."""
    (folder / "conf").write_text(text)
    program = shutil.which(name, path="/usr/sbin:" + os.environ["PATH"])
    assert program
    with (folder / "log").open("wb") as log:
        kept = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log, env=kept)
    try:
        until(lambda: listens(port) or process.poll() is not None, what=name)
        assert process.poll() is None, (folder / "log").read_text()
        yield
    finally:
        process.terminate()
        process.wait(10)
