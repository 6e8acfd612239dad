"""The session of section 3.2: active from a sign-in until logout, revocation or the end of its lifetime."""

from hatchway.statecharts.chart import NONE, Chart, Data, Delay, always
from hatchway.statecharts.chart import Transition as T  # noqa: N817 - rows read as a table

DEFAULT_LIFETIME = 3600
"""Seconds; also used when a requested lifetime is out of range (section 8)."""

SHORTEST_LIFETIME, LONGEST_LIFETIME = 60, 24 * 3600
"""Seconds, both included (section 8)."""


def credentials_are_valid(data: Data) -> bool:
    """A verified signature or an operator's yes stands behind the sign-in."""
    return data["proof"] in ("signature", "approval")


# fmt: off
CHART = Chart(
    name="session",
    rows=(
        # State    Event               Condition              Next state  Effects
        T(NONE,     "start",            credentials_are_valid, "active",   ("issue_token",)),
        T("active", "renew",            always,                "active",   ("issue_token",)),
        T("active", "logout",           always,                "ended",    ("end_session",)),
        T("active", "lifetime_elapsed", always,                "expired",  ("clean_up_tokens",)),
        T("active", "revoke",           always,                "ended",    ("end_session",), ours=True),
        T("active", "shorten",          always,                "active",   (),               ours=True),
    ),
    delays={"active": Delay("session_lifetime", "lifetime_elapsed", clock="wall")},
    final=frozenset({"ended", "expired"}),
)
# fmt: on
