"""The TLS context of a certificate: TLS 1.2 and up, HTTP/2 and HTTP/1.1."""

from __future__ import annotations

import ssl
from pathlib import Path


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A context for `serve`. Raises OSError or ssl.SSLError if the files don't hold a chain and its key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # what RFC 9113, appendix A, leaves of TLS 1.2
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.load_cert_chain(certificate, key)
    return context
