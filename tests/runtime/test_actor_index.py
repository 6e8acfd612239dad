"""The index of a chart's actors, beside sets that are sorted anew for each question."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.runtime.actor_index import ActorIndex

NAMES, OWNERS = "abcdef", ("ash", "birch")


@given(st.lists(st.sampled_from([(name, owner) for name in NAMES for owner in OWNERS])), st.sampled_from(["", *NAMES]))
def test_pages_are_those_of_sorted_sets(steps: list[tuple[str, str]], after: str) -> None:
    """Each step adds an actor that is not there, or takes it away: what follows a name is found, of one or of all."""
    index, held = ActorIndex(lambda facts: str(facts)), dict[str, str]()
    for name, owner in steps:
        if name in held:
            index.remove(name, held.pop(name))
        else:
            held[name] = owner
            index.add(name, owner)
    for asked in (*OWNERS, "nobody"):
        owned = {name for name, owner in held.items() if owner == asked}
        assert list(index.after(after, asked)) == sorted(name for name in owned if name > after)
        assert index.count(asked) == len(owned)
    assert list(index.after(after, None)) == sorted(name for name in held if name > after)
