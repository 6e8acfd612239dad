"""Errors of SSH, each with a sentence that says what to do."""

from __future__ import annotations

import re

from hatchway.api.client.wire import ClientFault


class SshFault(ClientFault):
    """A host can't be reached, or a step there failed. With `lasting`, connecting again would change nothing."""

    def __init__(self, detail: str, *, lasting: bool = True) -> None:
        super().__init__(detail)
        self.lasting = lasting


_CAUSES: tuple[tuple[str, str, bool], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key for .* has changed",
        "the key of {host} HAS CHANGED: somebody may be listening in. If its owner confirms the new one, forget the old"
        " one with: ssh-keygen -R {host}",
        True,
    ),
    (
        r"Host key verification failed",
        "the key of {host} was not accepted: compare it with its owner's, and accept it once with: ssh {host} true",
        True,
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "the host {host} is not known here: see the name, and the Host entries of ~/.ssh/config",
        False,
    ),
    (
        r"Too many authentication failures",
        "{host} refused too many keys: name the one it knows, in ~/.ssh/config by IdentityFile and IdentitiesOnly",
        True,
    ),
    (
        r"Permission denied|No more authentication methods",
        "{host} refused the sign-in by SSH: mend it until `ssh {host} true` works, by a key, an agent or a password",
        True,
    ),
    (
        r"Bad configuration option|unknown option|illegal option",
        "ssh does not take its options: see `ssh -G {host}`",
        True,
    ),
    (
        r"Connection refused",
        "nothing answers SSH on {host}: see that its sshd runs, and on which port (-- -p PORT)",
        False,
    ),
    (
        r"timed out|No route to host|Network is unreachable|Host is down",
        "{host} does not answer: see that the network, or the VPN, reaches it",
        False,
    ),
    (
        r"administratively prohibited|forwarding (is )?(disabled|refused)|Session open refused",
        "{host} allows no further session or forward on a connection: see MaxSessions and AllowTcpForwarding there",
        True,
    ),
)


def fault_of(host: str, said: str) -> SshFault:
    """The error for ssh's messages on standard error."""
    for pattern, sentence, lasting in _CAUSES:
        if re.search(pattern, said, re.IGNORECASE):
            return SshFault(sentence.format(host=host), lasting=lasting)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    why = f" ({lines[-1]})" if lines else ""
    return SshFault(f"the connection to {host} was lost{why}: run the command again", lasting=False)
