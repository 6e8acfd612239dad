"""Permission names, their grades, and what holding one allows (section 2.3; cases D18 and D19)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.access.principal import Principal, require
from hatchway.engine.base.errors import InvalidRequest, PermissionDenied
from hatchway.engine.base.permissions import FIVE, MASTER, allows, cut, fold, parse_permissions

NAMES = [*FIVE, *(f"{name}:READ" for name in FIVE)]
held_sets = st.lists(st.sampled_from([*NAMES, MASTER])).map(fold)

MALFORMED = [
    "",
    ",",
    "SHELL,",
    ",SHELL",
    " SHELL",
    "SHELL ",
    "SHELL, AGENT",
    "shell",
    "MASTER",
    "SHELL,MASTER",
    "MASTER:READ",
    "*",
    "ALL",
    "SHELL;RUNTIME",
    "SHELL:WRITE",
    "SHELL:READ:READ",
    "SHELL:",
    "SHELL\n",
    "SHELL\0",
    "SHELL" * 2000,
]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: repr(text[:20]))
def test_a_malformed_list_is_refused_and_the_names_are_listed(text: str) -> None:
    """Nothing is ever taken for "all"; the error lists the names and stays short."""
    with pytest.raises(InvalidRequest, match="SHELL, ARTIFACT, RUNTIME, WORKFLOW, AGENT") as refused:
        parse_permissions(text)
    assert len(refused.value.detail) < 300


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "an empty name;"),
        ("SHELL,", "an empty name;"),
        ("MASTER", "MASTER belongs to the engine's own key and is not given to another;"),
        ("shell", "'shell' is not a permission;"),
        ("MASTERS", "'MASTERS' is not a permission;"),
        ("A", "'A' is not a permission;"),
    ],
)
def test_each_malformed_name_has_its_reason(text: str, words: str) -> None:
    """Empty, not ours to give, or unknown: said as it is."""
    with pytest.raises(InvalidRequest, match=words):
        parse_permissions(text)


@pytest.mark.parametrize("text", ["ALL", "MASTERS", "SHELL,", "master"])
def test_where_master_may_stand_nothing_else_is_new(text: str) -> None:
    """The file of authorized keys takes MASTER by its name alone."""
    with pytest.raises(InvalidRequest):
        parse_permissions(text, master=True)


def test_names_are_folded_into_the_specification_s_order() -> None:
    """Doubled names are one name; a name and its grade are the name."""
    assert parse_permissions("AGENT,SHELL,AGENT") == ("SHELL", "AGENT")
    assert parse_permissions("RUNTIME:READ,RUNTIME,SHELL:READ") == ("SHELL:READ", "RUNTIME")


def test_master_is_read_only_where_it_may_stand() -> None:
    """The file of authorized keys may hold MASTER, which includes every other name."""
    assert parse_permissions("SHELL,MASTER", master=True) == (MASTER,)


@pytest.mark.parametrize(("held", "needed"), list(product(NAMES, NAMES)))
def test_a_name_allows_itself_and_looking(held: str, needed: str) -> None:
    """One name allows no other; `NAME` covers `NAME:READ` and not the other way round."""
    assert allows((held,), needed) == (needed in (held, f"{held}:READ"))


@pytest.mark.parametrize("grade", ["", "LOOK", "WRITE", "READ:READ"])
def test_no_other_grade_is_covered(grade: str) -> None:
    """A name covers its grade READ, and nothing that may come to stand behind the colon."""
    assert not allows(("SHELL",), f"SHELL:{grade}")


def test_only_master_is_master() -> None:
    """MASTER allows everything; all five together do not make MASTER."""
    assert all(allows((MASTER,), name) for name in [*NAMES, MASTER])
    assert not allows(FIVE, MASTER)
    assert not allows((), "SHELL:READ")


@given(held_sets, held_sets, st.sampled_from([*NAMES, MASTER]))
def test_a_cut_session_may_what_both_may(session: tuple[str, ...], key: tuple[str, ...], needed: str) -> None:
    """Effective permissions are exactly those that the session has and its key has now."""
    assert allows(cut(session, key), needed) == (allows(session, needed) and allows(key, needed))


def test_unknown_names_grant_nothing() -> None:
    """A name that a later release wrote is no permission here."""
    assert cut(("SHELL", "TELEPORT"), ("SHELL", "TELEPORT")) == ("SHELL",)


@given(st.text() | st.lists(st.sampled_from([*NAMES, MASTER, ""]), max_size=4).map(",".join))
def test_a_list_is_known_names_or_refused(text: str) -> None:
    """Whatever is typed, what comes out is a non-empty list of the five, at some grade."""
    try:
        names = parse_permissions(text)
    except InvalidRequest:
        return
    assert names
    assert set(names) <= set(NAMES)
    assert parse_permissions(",".join(names)) == names


@pytest.mark.parametrize(
    ("held", "needed", "enters"),
    [
        (("SHELL",), "SHELL", True),
        (("SHELL",), "SHELL:READ", True),
        (("SHELL:READ",), "SHELL", False),
        (("SHELL",), "AGENT", False),
        ((), "SHELL:READ", False),
        (FIVE, MASTER, False),
        ((MASTER,), MASTER, True),
        ((MASTER,), "RUNTIME", True),
    ],
)
def test_an_endpoint_lets_in_whoever_holds_what_it_needs(held: tuple[str, ...], needed: str, enters: bool) -> None:
    """And nobody else: the refusal names the permission that is missing."""
    principal = Principal("session", "SHA256:one", "key", held, 0)
    if enters:
        require(principal, needed)
    else:
        with pytest.raises(PermissionDenied, match=needed):
            require(principal, needed)
