"""The platform instance, from its request to its end (section 3.3 is open; this chart is ours)."""

from hatchway.statecharts.chart import NONE, Chart, Delay, always
from hatchway.statecharts.chart import Transition as T  # noqa: N817 - rows read as a table

LOCAL_START_WINDOW = 60.0
"""Seconds in which an instance must start whose image is on this host."""

FETCHED_START_WINDOW = 600.0
"""Seconds in which an instance must start whose image is fetched from a registry."""

STOP_WINDOW = 30.0
"""Seconds after which an instance that was told to stop is killed; again after as many, until it has ended."""

# fmt: off
CHART = Chart(
    name="instance",
    rows=(
        # State       Event            Condition  Next state   Effects
        T(NONE,        "request",       always,    "requested", ("queue_start",), ours=True),
        T("requested", "begin",         always,    "starting",  ("call_runtime",), ours=True),
        T("requested", "stop",          always,    "stopped",   ("refuse_start", "report_end"), ours=True),
        T("requested", "start_elapsed", always,    "failed",    ("refuse_start", "report_end"), ours=True),
        T("starting",  "queue",         always,    "queued",    ("hold_answer",), ours=True),
        T("queued",    "place",         always,    "starting",  (), ours=True),
        T("queued",    "fail",          always,    "failed",    ("refuse_start", "report_end"), ours=True),
        T("queued",    "stop",          always,    "stopping",  ("refuse_start", "undo_start"), ours=True),
        T("starting",  "confirm",       always,    "running",   ("watch_end", "confirm_start"), ours=True),
        T("starting",  "fail",          always,    "failed",    ("refuse_start", "report_end"), ours=True),
        T("starting",  "stop",          always,    "stopping",  ("refuse_start", "undo_start"), ours=True),
        T("starting",  "start_elapsed", always,    "stopping",  ("refuse_start", "undo_start"), ours=True),
        T("running",   "stop",          always,    "stopping",  ("stop_instance",), ours=True),
        T("running",   "end",           always,    "stopped",   ("report_end",), ours=True),
        T("running",   "fail",          always,    "failed",    ("report_end",), ours=True),
        T("stopping",  "end",           always,    "stopped",   ("report_end",), ours=True),
        T("stopping",  "fail",          always,    "failed",    ("report_end",), ours=True),
        T("stopping",  "stop_elapsed",  always,    "stopping",  ("kill_instance",), ours=True),
    ),
    delays={
        "requested": Delay("start_window", "start_elapsed"),
        "starting": Delay("start_window", "start_elapsed"),
        "stopping": Delay(STOP_WINDOW, "stop_elapsed"),
    },
    final=frozenset({"stopped", "failed"}),
)
# fmt: on
