"""The peers' folder, outside the tree: what is installed there, installed when asked, and how each is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PYTHON = (
    "fastapi",
    "uvicorn[standard]",
    "pyjwt[crypto]",
    "cryptography",
    "authlib",
    "flask",
    "gunicorn",
    "jupyter_server",
)
NODE = ("oidc-provider@9", "xstate@5")


def cache_folder() -> Path:
    """Where the peers live: HATCHWAY_BENCH_CACHE, or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("HATCHWAY_BENCH_CACHE") or Path(base) / "hatchway-bench")


class Peers(NamedTuple):
    """The interpreters that have the peers' packages; None where they are not installed."""

    python: Path | None
    node: Path | None

    @classmethod
    def found(cls, cache: Path | None) -> Peers:
        """What is there."""
        if cache is None:
            return cls(None, None)
        python = cache / "venv" / "bin" / "python"
        here = python.exists() and not subprocess.run([python, "-c", _TRY], capture_output=True, check=False).returncode
        has_node = shutil.which("node") is not None and (cache / "node_modules" / "oidc-provider").is_dir()
        return cls(python if here else None, cache if has_node else None)

    def missing(self) -> list[str]:
        """The names of those that can't be run."""
        python = [] if self.python else ["FastAPI by hand", "Authlib", "jupyter_server"]
        return python + ([] if self.node else ["oidc-provider", "xstate"])

    def fastapi(self, algorithm: str, public: Path, port: int) -> list[str]:
        return [str(self.python), str(HERE / "fastapi_by_hand.py"), str(port), algorithm, str(public)]

    def authlib(self, port: int) -> list[str]:
        gunicorn = [str(self.python), "-m", "gunicorn", "-k", "gthread", "--threads", "8", "-w", "1"]
        return [*gunicorn, "--chdir", str(HERE), "-b", f"127.0.0.1:{port}", "authlib_device:app"]

    def jupyter(self, port: int) -> list[str]:
        options = [f"--ServerApp.port={port}", "--IdentityProvider.token=bench", "--ServerApp.open_browser=False"]
        return [str(self.python), "-m", "jupyter_server", "--allow-root", "--ServerApp.ip=127.0.0.1", *options]

    def oidc(self, port: int) -> list[str]:
        assert self.node is not None
        script = self.node / "oidc_provider.mjs"  # node looks for packages beside the script
        shutil.copyfile(HERE / "oidc_provider.mjs", script)
        return ["node", str(script), str(port)]


_TRY = "import fastapi, uvicorn, jwt, authlib, flask, gunicorn, jupyter_server"


def install(cache: Path) -> None:
    """Fetch the peers by pip and npm. What can't be had is told by `missing`."""
    cache.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", cache / "venv"], check=False)
    subprocess.run([cache / "venv" / "bin" / "pip", "install", "--quiet", *PYTHON], check=False)
    if shutil.which("npm"):
        (cache / "package.json").write_text('{"private": true, "type": "module"}\n')
        subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit", *NODE], cwd=cache, check=False)
