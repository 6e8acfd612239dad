"""Hosts behind SSH, by the system's own `ssh`: one connection, commands and forwards over it. It knows no HTTP.

Who speaks. `ssh -M -N` holds the one connection; its control socket is in a private folder (connection.py). Where the
user's own configuration has a connection to that host already, that one is used, and left as it was. Each command is
`ssh -S CONTROL` with a socket pair for its standard input and output; each forward is asked for by `-O forward`, from a
Unix socket in the private folder, so that no port of this machine is ever another user's to take.

What is run on the host. One `sh` script (remote.py) finds the engine's command and becomes `hatchway engine attach`,
whose lines are the operator socket's. The script travels as base64 in the command line: fish, tcsh and zsh read it
alike. What start files print comes before a marker that was drawn for this connection, and is skipped.

What ends. Whoever opened the connection holds a pipe to a guard (guard.py): when that process dies, by whatever
signal, the guard ends the connection and removes the folder. On the host, `attach` ends with the connection, and the
operator socket's conversation with it.
"""
