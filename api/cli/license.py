"""`hatchway license info`: the license in force, and what it grants (section 4.6)."""

from __future__ import annotations

import os

import click

from hatchway.api.cli.groups import json_option


@click.group("license", epilog="\b\nExample:\n  hatchway license info")
def license_group() -> None:
    """The engine's license."""


@license_group.command("info", epilog="\b\nExample:\n  hatchway license info --json | jq .modules")
@json_option
def info(as_json: bool) -> None:
    """Show the license, and which modules it grants."""
    from hatchway.api.cli.printing import print_facts, print_json, say
    from hatchway.engine.access.license import MODULES, load_license
    from hatchway.engine.base.clock import SystemClock
    from hatchway.engine.settings.settings import home_folder
    from hatchway.engine.settings.sources import load_settings

    home = home_folder()
    settings = load_settings(home, os.environ, {})
    found = load_license(home / "license.jwt", settings.vendor_key, SystemClock())
    modules = {module: found.grants(module) for module in MODULES}
    if as_json:
        expiry = {"expires": found.expiry(), "expires_at": found.expires_at}
        print_json({"licensee": found.licensee, **expiry, "modules": modules, "problem": found.why_not()})
    else:
        print_facts(
            {"licensee": found.licensee, "expires": found.expiry() or "never"}
            | {module: "granted" if granted else "not granted" for module, granted in modules.items()}
        )
    if why := found.why_not():
        say(why, fg="red", err=True)
        raise SystemExit(1)
