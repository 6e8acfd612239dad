"""The yardstick: a bare ASGI hello on stock Hypercorn, trio worker."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Fifteen bytes to everybody."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"15")]})
        await send({"type": "http.response.body", "body": b"hello, whoever!"})
    else:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    config.accesslog = None
    config.backlog = 4096
    config.keep_alive_timeout = 600  # to measure what idle connections take, ten thousand must stay open
    trio.run(partial(serve, hello, config, mode="asgi"))
