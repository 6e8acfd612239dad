"""`python -m tests.readme`: draws the tables of README and handbook from the tables that the engine runs."""

from __future__ import annotations

import inspect
import json
import re
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from hatchway.api import client
from hatchway.api.client import Client
from hatchway.api.http.problems import STATUS
from hatchway.api.http.schema.openapi import record_schema
from hatchway.api.http.table import ENDPOINTS
from hatchway.engine.runtime.records import NOTICES
from hatchway.engine.settings.settings import TABLE, show
from hatchway.statecharts import instance, pairing, session
from hatchway.statecharts.draw.render import table
from tests.bench.profile import kept
from tests.support.fakes import ROOT

README = ROOT / "README.md"
CHAPTERS = {page.stem: page for page in sorted((ROOT / "api/handbook").glob("*.md"))}
LICENSES = CHAPTERS["licenses"]
PAGES = (README, *CHAPTERS.values())


def manual() -> str:
    """The README, and after it every chapter of the handbook."""
    return "\n".join(page.read_text() for page in PAGES)


def charts() -> str:
    """The three charts in the specification's columns."""
    return "\n\n".join(f"### {m.CHART.name.title()}\n\n{table(m.CHART).strip()}" for m in (pairing, session, instance))


def endpoints() -> str:
    """Method, path, who may, what."""
    rows = ["| method | path | for | what |", "|---|---|---|---|"]
    names = {"open": "anybody", "session": "any session"}
    rows += [f"| {d.method} | `{d.path}` | {names.get(d.access, f'`{d.access}`')} | {d.summary} |" for d in ENDPOINTS]
    return "\n".join(rows)


def problems() -> str:
    """Every code and its status."""
    rows = ["| code | status |", "|---|---|"]
    return "\n".join(rows + [f"| `{code}` | {status} |" for code, status in sorted(STATUS.items())])


def settings() -> str:
    """Name, default, what it is, when it counts."""
    rows = ["| setting | default | what | takes effect |", "|---|---|---|---|"]
    for name, row in TABLE.items():
        default = show(name, row.default).replace(str(Path.home()), "~")
        rows.append(f"| `{name}` | {f'`{default}`' if default else ''} | {row.about} | {row.effect} |")
    return "\n".join(rows)


def record() -> str:
    """The JSON Schema of a record."""
    return f"```json\n{json.dumps(record_schema(), indent=2)}\n```"


def notices() -> str:
    """Every notice, and what it says."""
    rows = ["| chart | event | what it says |", "|---|---|---|"]
    return "\n".join(rows + [f"| {chart} | {event} | {what} |" for (chart, event), what in NOTICES.items()])


def alerts() -> str:
    """The rules of Prometheus that an installation brings."""
    return f"```yaml\n{(ROOT / 'api/dashboards/alerts.yml').read_text()}```"


def told(thing: object) -> str:
    """The first paragraph of a docstring, without the sections of the specification that it names."""
    words = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    return re.sub(r" \([^()]*section[^()]*\)", "", words)


def calls() -> str:
    """Every call of the Python client, what it gives, and what it is for."""
    rows = ["| call | gives | what |", "|---|---|---|"]
    for name, call in vars(Client).items():
        if name.startswith("_") or call in (Client.run, Client.stream):  # they take what only our own code has
            continue
        signature = inspect.signature(call)
        taken = [one.replace(annotation=one.empty) for one in list(signature.parameters.values())[1:]]
        asked = signature.replace(parameters=taken, return_annotation=signature.empty)
        given = str(signature.return_annotation).replace("wire.", "")
        rows.append(f"| `{name}{asked}` | `{given}` | {told(call)} |")
    return "\n".join(rows)


def client_errors() -> str:
    """What the Python client raises."""
    rows = ["| error | when |", "|---|---|"]
    kinds = [getattr(client, name) for name in client.__all__]
    faults = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, client.ClientFault)]
    return "\n".join(rows + [f"| `{fault.__name__}` | {told(fault)} |" for fault in faults])


def profile() -> str:
    """Where a sign-in's time goes, as it was measured last."""
    return kept()


def closure(name: str = "hatchway", extras: tuple[str, ...] = ("fleet", "test")) -> dict[str, Distribution]:
    """What is installed for a distribution with these extras: each one's name in lower case, and itself."""
    found: dict[str, Distribution] = {}
    wanted = [(name, extras)]
    while wanted:
        name, extras = wanted.pop()
        one = distribution(name)
        found[one.metadata["Name"].lower().replace("_", "-")] = one
        for text in one.requires or ():
            need = Requirement(text)
            asked = need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))
            if asked and need.name.lower().replace("_", "-") not in found:
                wanted.append((need.name, tuple(need.extras)))
    return found


def license_of(one: Distribution) -> str:
    """In words of SPDX where its metadata has them (PEP 639), else as the metadata says it."""
    told = one.metadata.json
    classified = [c.rpartition(" :: ")[2] for c in told.get("classifier", ()) if c.startswith("License")]
    short = str(told.get("license", "")).strip()
    return str(told.get("license_expression") or (short if 0 < len(short) < 40 else ", ".join(classified)))


def licenses() -> str:
    """Every distribution that an installation holds, and its license."""
    rows = ["| distribution | license |", "|---|---|"]
    return "\n".join(rows + [f"| {name} | {license_of(one)} |" for name, one in sorted(closure().items())])


def drawn(text: str) -> str:
    """A page's text with each drawn part as it is now."""
    for part in (calls, charts, client_errors, endpoints, problems, profile, record, notices, settings, alerts):
        name = part.__name__
        between = f"<!-- {name} -->\n\n{part()}\n\n<!-- /{name} -->"
        text = re.sub(f"<!-- {name} -->.*?<!-- /{name} -->", lambda _: between, text, flags=re.DOTALL)  # noqa: B023
    return text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(drawn(page.read_text()))
    LICENSES.write_text(re.sub(r"\| distribution .*\|\n", licenses() + "\n", LICENSES.read_text(), flags=re.DOTALL))
