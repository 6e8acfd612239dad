"""Sockets, connections, deadlines, HTTP/1.1 and HTTP/2: between the network and an ASGI app. The only package that
imports Hypercorn, for HTTP/2 alone; it knows no endpoint.

Who speaks
    A client, or a proxy for many of them, over TCP or a Unix socket; with TLS, ALPN chooses HTTP/1.1 or HTTP/2 (RFC
    9112, RFC 9113). On our side stand, in this order, the listener, the connection, and on it the fast path, h11 or
    h2; behind them the gateway's `handle` (`fast_path`) and the ASGI app.

In order
    1. `listeners` takes connections off the listening sockets, a few in each tick of the event loop, and `places`
       decides which connection is closed where all places are taken. If none is, the new one gets a bare 503.
    2. `silent` keeps a connection until its first byte has come; only then is it a `Connection`, a task.
    3. `connection` makes the TLS handshake, then reads. While no request is under way, what stands whole in the
       buffer goes to the fast path (`plain_requests`), which parses it and calls the gateway. What it leaves, it leaves
       untouched, to h11.
    4. `h1` and `h2` refuse what no app should see, and make a `Stream` of each request. `starts` lets a few requests
       begin in each tick, one address after the other. The app runs in a task of its own: it receives the body as it
       comes, then `http.disconnect`, and sends a head and then the body (ASGI HTTP 2.4).
    5. `writer` sends: responses of the fast path together at the tick's end, all others at once, as far as the kernel
       takes them; the rest waits for the client, in the queues of `deadlines`, where every wait has its end.

What each side may assume
    The app gets whole and unambiguous heads: one Host, one length, a path in origin form. It may send when it likes:
    sending waits while the client takes nothing, and raises `ClientGone` once nobody waits for the response. An error
    of the app ends its own request, with a 500 where no response has begun, and a cut connection where one has.
    The gateway's `handle` is called with whole requests only and must not wait for anything that may last: nothing is
    read meanwhile.
    A client may send the next HTTP/1.1 request before it has the response: responses come in the order of the
    requests. On HTTP/2 they come as they are ready. A head has `header_seconds`, a body `body_seconds`, an idle
    connection `idle_seconds`, and a client that takes nothing of a response `write_seconds`.
    Whatever waits for clients is counted by address (`places`); past the bound, whoever holds most is cut off.

When one dies
    A client that leaves is seen at once, but while the gateway's `handle` is awaited: its app gets `http.disconnect`.
    One that says its last word and reads on (half-closed) has 0.1 s for the response. A client that vanishes without
    a word is found by its deadline.
    When the engine ends (`shutdown` is set): nobody is accepted any more, idle connections close at once, responses
    have `shutdown_seconds`, then their apps are cancelled and what is left is cut. A server that is cancelled cuts at
    once.
    If the engine's process dies, the kernel resets all its connections; nothing here survives it.
"""
