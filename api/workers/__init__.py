"""Worker processes share an engine's port and take load from it; the one engine still decides everything.

Who speaks. The engine's `WorkerPool` starts each `Worker` with one end of a socket pair (`Channel`) and the listening
sockets. A worker has the engine's own `Gateway`, over a `WorkerBackend`, which asks the engine by an `EngineClient`.
At the engine a `WorkerHandle` answers.

The messages in order (`messages`). The engine sends `Configure`, the worker `Configured` once it serves by that; the
same again after each reload. Then, at any time and many at once, told apart by their numbers: `HandleRequest` (a whole
request, already screened) is answered by `Responded`; `CheckHead` (a head whose body has not been read) by `Responded`,
with what refuses it, if anything does; `StartSession` (a signature that the worker has found good) by `SessionStarted`,
with the new session or nothing. `RequestCounts` says every second how many requests the worker has answered; nobody
answers that. `Stop` has the worker accept no connection and end what it is doing.

What is held open or has a path of its own (streams, instances, the console) doesn't fit the channel: `Relay` hands
such a request to the engine's app at a Unix socket, one connection each, and passes the parts of the response on.

What each side may assume. The engine believes a worker about its clients, and that a request was screened: both run
as the same user, and only that user can reach channel and socket. A worker believes what the engine answers. It may
give a response again while the version counters in shared memory (`sessions.versions`) stand as in the response's
snapshot, authorized_keys is the same, and the response's time is not over. The engine moves a counter before it answers
whoever caused the change.

When one dies. A worker whose channel closes ends at once, with its connections: nobody could answer for sessions. The
engine starts a worker that died again, after a pause that doubles; what that worker was asked ends with its
connections, and what it counted last, up to a second, is lost.
"""
