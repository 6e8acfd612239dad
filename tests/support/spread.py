"""How the suite's files are spread over the workers of `-n`, and in what order they are begun."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

ONE_USERS_INSTANCES = (
    "apptainer",
    "apptainer_home",
    "apptainer_volumes",
    "client_instances",
    "cli_instances",
    "instance_endpoints",
    "instance_permissions",
    "registry",
)
"""Files that watch the instances of one user."""

LONG = (
    *ONE_USERS_INSTANCES,
    *("fleet_faults", "faults", "open_install", "open_hosts", "open_kills", "ship", "simulation", "bench", "openapi"),
    *("console_keys", "fleet_contract", "readme", "console_tabs", "naughty_strings", "pairing_processes", "fuzz"),
    *("console_firefox", "dist", "console_past", "slurm", "console_pairing", "fleet", "nginx", "chart_proofs"),
    *("console_slurm", "workers", "console_live", "fleet_instances", "fleet_keys", "console_access", "tls_proxies"),
    *("poor_file_systems", "ten_minutes", "crash", "fleet_kills", "console_site_data", "explorer", "key_expiry"),
    *("full_disk", "security_host", "console_attacks", "server", "event_load", "many_sessions"),
)
"""Files that take long, longest first. Begun last, one of them would be all that is left to wait for."""

_BEGUN = {subject: number for number, subject in enumerate(LONG)}


def _subject(nodeid: str) -> str:
    """What a test's file is of."""
    return nodeid.partition(".py::")[0].rpartition("/")[2].removeprefix("test_")


def place(nodeid: str) -> int:
    """By which the tests are begun, lowest first."""
    return _BEGUN.get(_subject(nodeid), len(LONG))


def group(nodeid: str) -> str:
    """The tests that one worker runs, one after the other: a file's, and those of all files that watch one user's."""
    subject = _subject(nodeid)
    return "instances" if subject in ONE_USERS_INSTANCES else subject


class Spread(LoadFileScheduling):  # type: ignore[misc]
    """Each group to a worker, in the order of `place`."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
