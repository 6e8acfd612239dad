"""A lease on an instrument of a lab: asked for, granted, extended, warned of its end, expired or released."""

from collections.abc import Callable

import msgspec

from hatchway.charts import NONE, Actor, Chart, Data, Delay, Origin, Runtime, Store, Transition, always

WARNED_BEFORE = 300.0
"""Seconds before a lease's end at which its holder is warned."""


class Lease(msgspec.Struct, frozen=True):
    """What is stored of a lease: who holds the instrument, and for how many seconds at a time."""

    holder: str
    seconds: float


def is_the_holder(data: Data) -> bool:
    """Only the holder extends a lease, or gives it back."""
    return bool(data["by"] == data["holder"])


CHART = Chart(
    name="lease",
    rows=(
        Transition(NONE, "request", always, "requested", ("ask_keeper",)),
        Transition("requested", "grant", always, "granted", ("tell_holder",)),
        Transition("requested", "refuse", always, "refused", ("tell_holder",)),
        Transition("requested", "answer_elapsed", always, "refused", ("tell_holder",)),
        Transition("granted", "extend", is_the_holder, "granted"),
        Transition("granted", "warning_elapsed", always, "warned", ("tell_holder",)),
        Transition("granted", "release", is_the_holder, "released", ("switch_off",)),
        Transition("warned", "extend", is_the_holder, "granted", ("tell_holder",)),
        Transition("warned", "release", is_the_holder, "released", ("switch_off",)),
        Transition("warned", "lease_elapsed", always, "expired", ("switch_off", "tell_holder")),
    ),
    delays={
        "requested": Delay(900.0, "answer_elapsed", clock="wall"),
        "granted": Delay("until_warning", "warning_elapsed", clock="wall"),
        "warned": Delay(WARNED_BEFORE, "lease_elapsed", clock="wall"),
    },
    final=frozenset({"refused", "released", "expired"}),
)


class Leases:
    """The leases of a lab, one an instrument. `tell` gets who is to know, and of which instrument what."""

    def __init__(self, runtime: Runtime, store: Store, tell: Callable[[str, str, str], None]) -> None:
        self.runtime, self.tell = runtime, tell
        effects = {"ask_keeper": self.ask_keeper, "tell_holder": self.tell_holder, "switch_off": self.switch_off}
        rules = {"until_warning": lambda lease, now: now + lease.seconds - WARNED_BEFORE}
        runtime.register(CHART, facts=Lease, store=store, effects=effects, rules=rules)

    def ask_keeper(self, lease: Actor, data: Data) -> None:
        self.tell("keeper", lease.id, f"{lease.facts.holder} asks for it")

    def tell_holder(self, lease: Actor, data: Data) -> None:
        self.tell(lease.facts.holder, lease.id, lease.state)

    def switch_off(self, lease: Actor, data: Data) -> None:
        self.tell("instrument", lease.id, "off")

    async def request(self, instrument: str, holder: str, seconds: float) -> None:
        """Ask for an instrument. Raises EventRefused where somebody has it, or has asked for it."""
        await self.runtime.create("lease", instrument, "request", Lease(holder, seconds), origin=Origin(holder))

    async def send(self, event: str, instrument: str, by: str) -> None:
        """`grant`, `refuse`, `extend` or `release`. Raises EventRefused where the chart has no such row now."""
        lease = self.runtime.peek("lease", instrument)
        holder = lease.facts.holder if lease else ""
        await self.runtime.send("lease", instrument, event, origin=Origin(by), by=by, holder=holder)
