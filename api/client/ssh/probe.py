"""Checks that a forward leads to the engine that was attached to, before a browser is sent there."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
from http.client import HTTPException, HTTPResponse
from pathlib import Path

WAIT = 10.0


def issuer_at(near: Path, address: str, fingerprint: str | None) -> str | None:
    """The name that the engine behind the Unix socket `near` gives itself (`/readyz`); None where nobody answers: the
    host refuses the forward, or whoever answers is no engine. `fingerprint` is that of the certificate it must show."""
    try:
        with socket.socket(socket.AF_UNIX) as plain:
            plain.settimeout(WAIT)
            plain.connect(str(near))
            with _secured(plain, fingerprint) as stream:
                stream.sendall(f"GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                answer = HTTPResponse(stream)
                answer.begin()
                return str(json.loads(answer.read(65_536))["issuer"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None


def _secured(plain: socket.socket, fingerprint: str | None) -> socket.socket:
    if fingerprint is None:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the fingerprint is checked instead
    secured = context.wrap_socket(plain)
    shown = hashlib.sha256(secured.getpeercert(binary_form=True) or b"").hexdigest().upper()
    if shown != fingerprint.replace(":", "").upper():
        raise ssl.SSLError("another certificate than the engine told")
    return secured
