"""Pictures of the console, taken of a real engine: `python -m tests.screenshots FOLDER`."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page

from tests.support.browser import KEYS, Host, Visitor, running_chromium, running_host, visiting
from tests.support.containers import IMAGE

SIZES = {"desktop": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}
INSTANCE = "api/platform/singularity/instance/"
SCRIPT = 'i=0; while :; do i=$((i+1)); echo "step $i  loss 0.$((9000/i))"; sleep 1; done'
INSTANCES = (
    {"identity": "train-resnet", "command": ["/bin/sh", "-c", SCRIPT]},
    {"identity": "nightly-report", "command": ["/bin/sh", "-c", "echo done; exit 2"]},
)


class Album:
    """Where the pictures of one size and scheme go."""

    def __init__(self, folder: Path, ending: str) -> None:
        self._folder, self._ending, self._count = folder, ending, 0

    def take(self, page: Page, name: str) -> None:
        self._count += 1
        page.wait_for_timeout(350)  # transitions have ended
        page.screenshot(path=self._folder / f"{self._count:02}-{name}-{self._ending}.png", full_page=True)


def sign_in_pictures(visitor: Visitor, album: Album) -> None:
    """The two forms, a refusal, and the wait for the operator."""
    page = visitor.open()
    album.take(page, "sign-in")
    page.set_input_files("#key-file", KEYS / "rsa2048.openssh.pem")
    album.take(page, "key-refused")
    page.set_input_files("#key-file", KEYS / "rsa3072.pkcs8.pem")
    page.check("#remember")
    album.take(page, "key-chosen")
    page.close()
    with visitor.host.pairing() as terminal:
        page = visitor.open(f"#pair={terminal.code()}")
        album.take(page, "pairing")
        page.click("#pair-submit")
        terminal.match_number()
        page.wait_for_timeout(3000)
        album.take(page, "waiting")
        terminal.type("n\n")
        page.locator("#code-error:visible").wait_for()
        album.take(page, "pairing-refused")
    page.close()


def signed_in_pictures(visitor: Visitor, album: Album) -> None:
    """The signed-in page: of a paired session, and of the engine's own key with everything it may see."""
    with visitor.host.pairing("--permissions", "SHELL,AGENT,RUNTIME:READ", "--lifetime", "30m") as terminal:
        page = visitor.pair(terminal)
        page.locator("#sessions-list li").first.wait_for()
        album.take(page, "paired")
        page.click("#logout")
    page.check("input[value=key]", force=True)
    visitor.sign_in(visitor.host.home / "private-key.pem", page=page)
    page.locator("#charts figure").nth(2).wait_for()
    if IMAGE.exists():
        page.locator("#instances-list .row-actions button").first.click()
    with visitor.host.pairing() as terminal:
        terminal.code()
        page.wait_for_timeout(500)
        album.take(page, "master")
    page.click("#start-open")
    page.click("#start-more summary")
    page.fill("#start-image", "/etc/passwd")
    page.click("#start-form button.main")
    page.locator("#start-image-error:visible").wait_for()
    album.take(page, "start")
    page.click("#everywhere")
    page.wait_for_timeout(350)
    album.take(page, "question")
    page.click("#confirm-no")


def furnish(chromium: Browser, host: Host) -> None:
    """Something to see: sessions of two keys, and instances where this machine can run them."""
    for key in ("rsa3072.pkcs8.pem", "rsa2048.pkcs8.pem"):
        with visiting(chromium, host) as somebody:
            page = somebody.sign_in(key, lifetime="8h")
            token = json.loads(page.evaluate("sessionStorage['hatchway.session']"))["token"]
    for instance in INSTANCES if IMAGE.exists() else ():
        headers = {"Authorization": f"Bearer {token}"}
        body = {"image": "box.sif", **instance}
        httpx.post(host.url + INSTANCE, headers=headers, json=body, timeout=60).raise_for_status()


def main() -> None:
    """Takes every picture, in both sizes and both schemes."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m tests.screenshots FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        host = stack.enter_context(running_host(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        chromium = stack.enter_context(running_chromium())
        furnish(chromium, host)
        for size, viewport in SIZES.items():
            for scheme in ("light", "dark"):
                looks = {"viewport": viewport, "color_scheme": scheme, "device_scale_factor": 2}
                with visiting(chromium, host, **looks) as visitor:
                    album = Album(folder, f"{size}-{scheme}")
                    sign_in_pictures(visitor, album)
                    signed_in_pictures(visitor, album)
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")


if __name__ == "__main__":
    main()
