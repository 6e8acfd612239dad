"""The pairing code of section 3.1: printed by the host, claimed by a console, answered by the operator."""

from hatchway.statecharts.chart import NONE, Chart, Data, Delay, always
from hatchway.statecharts.chart import Transition as T  # noqa: N817 - rows read as a table

CLAIM_WINDOW = 30.0
"""Seconds a printed code waits for a console (section 8)."""

DECISION_WINDOW = 30.0
"""Further seconds the operator has for the answer (section 8)."""


def within_claim_window(data: Data) -> bool:
    """The claim comes before the code's deadline."""
    return bool(data["now"] < data["deadline"])


def within_decision_window(data: Data) -> bool:
    """The answer comes before the decision's deadline."""
    return bool(data["now"] < data["deadline"])


# fmt: off
CHART = Chart(
    name="pairing",
    rows=(
        # State     Event               Condition               Next state   Effects
        T(NONE,      "issue",            always,                 "issued",    ("print_code",)),
        T("issued",  "claim",            within_claim_window,    "claimed",   ("confirm_claim", "ask_operator")),
        T("issued",  "claim_elapsed",    always,                 "expired",   ("consume_code",)),
        T("claimed", "approve",          within_decision_window, "approved",  ("consume_code", "sign_in")),
        T("claimed", "reject",           always,                 "rejected",  ("consume_code", "refuse_claim")),
        T("claimed", "decision_elapsed", always,                 "expired",   ("consume_code", "report_expiry")),
        T("issued",  "withdraw",         always,                 "withdrawn", ("consume_code",), ours=True),
        T("claimed", "withdraw",         always,                 "withdrawn", ("consume_code", "refuse_claim"), ours=True),
        T("claimed", "leave",            always,                 "left",      ("consume_code",), ours=True),
    ),
    delays={
        "issued": Delay(CLAIM_WINDOW, "claim_elapsed"),
        "claimed": Delay(DECISION_WINDOW, "decision_elapsed"),
    },
    final=frozenset({"approved", "rejected", "expired", "withdrawn", "left"}),
)
# fmt: on
