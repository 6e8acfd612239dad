"""What a session was begun with: the label that people tell it by, and the program that asked (RFC 9110, 10.1.5)."""

from __future__ import annotations

import re
from typing import NamedTuple

from hatchway.engine.base.errors import InvalidRequest

LONGEST_LABEL = 64
"""Characters of a label."""

LONGEST_AGENT = 200
"""Characters of what is kept of a User-Agent."""

_BROWSERS = (("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrome", "Chrome"), ("Safari", "Safari"))
"""Products in a browser's User-Agent, and the browser's name. Most name Safari and Chrome too: so these come last."""

_SYSTEMS = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iOS"),
    ("iPad", "iOS"),
    ("Mac OS X", "macOS"),
    ("Darwin", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
_PRODUCT = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class Device(NamedTuple):
    """`label` is for people; `agent` is the User-Agent as it was sent, all but ASCII replaced."""

    label: str = ""
    agent: str = ""


def device_of(label: str | None, agent: bytes) -> Device:
    """The device of a request. Without a label it is called by its program and system. Raises InvalidRequest."""
    text = "".join(chr(byte) if 0x20 <= byte <= 0x7E else "?" for byte in agent[:LONGEST_AGENT])
    return Device(_default(text) if label is None else _checked(label), text)


def _checked(label: str) -> str:
    if not 1 <= len(label) <= LONGEST_LABEL or not label.isprintable() or not label.strip():
        raise InvalidRequest({"label": f"must be 1 to {LONGEST_LABEL} printable characters"})
    return label


def _default(agent: str) -> str:
    """`Firefox on Linux`; the program's name alone where nothing is said of a system; empty where nothing is said."""
    browser = next((name for product, name in _BROWSERS if f"{product}/" in agent), None)
    if browser is None or not agent.startswith("Mozilla/"):
        product = _PRODUCT.match(agent)
        browser = product[0] if product else ""
    system = next((name for word, name in _SYSTEMS if word in agent), None)
    return f"{browser} on {system}" if browser and system else browser
