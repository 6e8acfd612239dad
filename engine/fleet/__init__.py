"""Several engines over one Redis: their leases and messages, remote calls, and what they share.

Who speaks. Every engine speaks to the store, and through the store to the other engines; no two of them have a
connection. An engine has three names: its run (this process and no other ever), its home (the same engine across
restarts) and its host (for people). All engines of a fleet are of one version: what stays in the store is read by later
versions too, the messages between engines are not.

What is in the store, each key after `hatchway:`.
- `engine:RUN`, the lease. It lasts three seconds and is renewed every second; an engine is alive while it is there.
  `home:HOME` names the run and host that the home has now, for a week.
- `changes`, a stream. Each commit of a session, and each change of the shared keys, adds one numbered entry with the
  actor's name and version, in the same atomic step as the change itself. Entries stay for ten minutes.
- `inbox:RUN`, a stream of messages to one engine.
- `codes`, the pairing codes that are out, by digest; `claim:TICKET`, for a minute, the run that has the call of that
  claim, or nothing where it was cancelled first.
- `instances`, one row for each instance, which its home alone writes; the sessions and the keys; counters of failures;
  the keys under which nonces are made.

How the sessions are followed. Every engine has all live sessions in memory and reads `changes` and its own inbox with
one blocking read, at least five times a second (`change_reader.py`). An entry says that an actor moved; the stored
value is the truth and is read anew. A read that brings all that there is confirms the memory: for 0.75 s from then on
sessions are answered from it, and after that only once it is confirmed again, else with 503. So an end that the store
has answered is known to every engine that answers a second later. An engine that starts has none of the sessions. It
notes the last entry, and takes them up in pages between its reads, while it answers: a session that is not in memory
yet is read when somebody comes with its token, and lists wait until all are there. After a lost connection it goes on
behind the last entry that it read, where the store still has that very entry: then it has missed nothing that it will
not read, but for changes of its own that a failover may have lost, and those it reads anew. Where that entry is gone,
or a number is missing, the versions of all sessions are compared.

Redis could tell each engine by itself what moved of the sessions that it has read (CLIENT TRACKING), and an engine
could then hold a part of them. Measured beside the stream: a change at 1,000 a second costs an engine that holds the
session twice as much, as each comes as a message of its own, and one that does not hold it nothing; a session takes
1.9 times the memory in Redis, since lists, limits and expiry need indexes there once no engine has all. That pays
where the sessions of a fleet don't fit in an engine's memory any more: ten million take 7 GB of it.

A message has a `kind` and the fields of that kind. Messages from one engine to another are taken one by one, in the
order in which they were sent; only a reply may overtake what does not belong to its call. The kinds:
- `call` (ticket, caller, method, body): do `method`; `caller` is the run that waits.
- `progress` (ticket, body): something that the method reports before it returns.
- `reply` (ticket): the method returned or refused; what, is in `reply:TICKET`, which the caller takes from the store.
- `cancel` (ticket): the caller no longer needs it.
- `wrong_code` (pairing, count): a guess was made at some engine, and so many were made while this code was out.

A remote call (`remote_calls.py`), in order. The caller makes a ticket and sends `call`, in one atomic step with a look
at the lease of the called engine. That one starts the method as a task of its own. It may send `progress`, and sends
exactly one `reply`, also where the method refused, failed, or was cancelled first. The caller takes the reply, or gives
up when its time is over and sends `cancel`. The methods:
- `claim`: a console of the caller claims a code that was printed here. The caller does not know who printed it, so the
  store's script `CLAIM` consumes the code and addresses the call. Progress within two seconds is the match number;
  without it the claim is refused. Where the answer of `CLAIM` was lost, or the console left before it, the caller does
  not know whom to send `cancel`: the script `UNCLAIM` does that, or keeps a `CLAIM` that still comes from being done.
  The reply comes with the operator's answer and is the name of a session, for which the caller issues a token: no token
  is in the store. Where none has come 15 s after the operator's window, a failover of the store has lost it: the caller
  tells the console that the window is over, and sends `cancel`. Else `cancel` is the console's leaving; where the
  operator's yes came first the reply is the session all the same, and the caller ends it.
- `stop` and `read`: end an instance, and the piece of a log at a position. Neither is cut short by `cancel`.

What each side may assume. The caller: a reply is from the method that it called, a refusal is the one that was raised
there, and no reply says nothing about whether the method ran. The called engine: the caller has authenticated whoever
asked and checked what they may do; anyone who can write to the store is trusted as an engine is. A call that the store
was told of twice may run twice: a method must bear that.

What happens when one dies. Both sides of a call watch the other's lease, and hear at the next renewal of their own
that it is gone: within four seconds of a death, one of an orderly stop, which gives the lease up. A caller then stops
waiting: the claim is refused, the instance's host is unavailable. A called engine treats it as `cancel`: the claim is
void and the terminal told, a stop goes on. The dead engine's codes are refused and dropped at the next claim or guess.
Its instances stay listed as not answering until its home is back and compares its rows with its own file, or is
forgotten after a week. Its sessions are everybody's and live on.

When the store is away. Nothing can be committed, no lease is renewed, and the memory is soon unconfirmed: engines
answer 503. Messages are sent again for 15 s. Leases that ran out meanwhile are renewed one by one when it is back, so
that a call may end though both engines live; a reply does not look at the lease of its caller. A store that has another
identity than at the start, having been emptied, is refused until the engine is restarted.
"""
