"""Edits of authorized_keys' content, wherever it is kept: bytes in, bytes out (section 2.4)."""

from __future__ import annotations

import pytest

from hatchway.engine.base.errors import KeyRefused
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.keys.key_edits import register, unregister
from tests.support.authorized_keys import LINE, A, B

ENGINE = f'permissions="MASTER" {LINE} engine\n'.encode()


@pytest.mark.parametrize("names", [(), ("BOGUS",), ("shell",)])
def test_a_key_without_permissions_is_not_registered(names: tuple[str, ...]) -> None:
    """Not as a line that grants nothing, and not as one that would grant all five."""
    with pytest.raises(KeyRefused, match="without any permission"):
        register(b"", A, names)


def test_permissions_are_written_each_once_and_in_their_order() -> None:
    """Whatever order and grades they were asked in, so that the same again is no change."""
    data, done = register(b"", A, ("AGENT:READ", "SHELL", "AGENT", "SHELL"))
    assert data == f'permissions="SHELL,AGENT" {LINE}\n'.encode()
    assert done.entry.permissions == ("SHELL", "AGENT")
    assert register(data, A, ("AGENT", "SHELL"))[1].outcome == "unchanged"


def test_the_engine_s_own_key_is_safe_from_an_edit_that_does_not_name_it() -> None:
    """Who says neither `own` nor `force` neither narrows it, nor takes it out, nor hands out MASTER."""
    for edit in (
        lambda: register(ENGINE, A),
        lambda: register(b"", B, (MASTER,)),
        lambda: unregister(ENGINE, "engine"),
    ):
        with pytest.raises(KeyRefused, match="engine's own key"):
            edit()


def test_no_comment_stands_in_for_another_key_s_identity() -> None:
    """A whole identity means its key, also where somebody has chosen it as a comment of theirs."""
    data, _ = register(f"{LINE} a\n".encode(), B, comment=A.identity)
    left, (identity, _) = unregister(data, A.identity)
    assert identity == A.identity
    assert LINE.encode() not in left
    assert B.openssh().encode() in left
